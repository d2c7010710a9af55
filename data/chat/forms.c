// The known forms, and the templates that they replace: see form.h.
//
// Each form renders like its template (tests/data/test_chat.c compares them with
// apply_chat_template of transformers). A template is recognised by the SHA-256 of its text
// (form_of_template), which scripts/gen/chat_fixtures.py --hash FILE prints.
//
// The templates of Llama 3.1 write the date 26 Jul 2024 unless they are given another, and so do
// these forms: what a model learns must not depend on the day.
#include "data/chat/form.h"
#include "data/text/sha256.h"

#include <string.h>

#define CHATML_ROLE(role)                                                                          \
    { "<|im_start|>" role "\n", "<|im_end|>\n" }
#define CHATML                                                                                     \
    [ROLE_SYSTEM] = CHATML_ROLE("system"), [ROLE_USER] = CHATML_ROLE("user"),                      \
    [ROLE_ASSISTANT] = CHATML_ROLE("assistant")
#define CHATML_REST(opens_answer)                                                                  \
    .ask = "<|im_start|>assistant\n" opens_answer, .needs = {"<|im_start|>", "<|im_end|>"}
// system_text: the default system message, or NULL.
#define CHATML_FORM(form_name, system_text)                                                        \
    .name = form_name, .role = {CHATML}, .default_system = system_text, CHATML_REST("")
// opens_answer: what stands behind the head of an answer that is asked for.
#define QWEN_FORM(form_name, system_text, opens_answer)                                            \
    .name = form_name,                                                                             \
    .role = {CHATML, [ROLE_TOOL] = {"\n<tool_response>\n", "\n</tool_response>"}},                 \
    .tools_open = "<|im_start|>user", .tools_end = "<|im_end|>\n", .default_system = system_text,  \
    CHATML_REST(opens_answer)

#define LLAMA3_HEAD(role) "<|start_header_id|>" role "<|end_header_id|>\n\n"
#define LLAMA3_ROLE(role)                                                                          \
    { LLAMA3_HEAD(role), "<|eot_id|>" }
#define LLAMA3_FORM(form_name)                                                                     \
    .name = form_name, .begin = "{bos}",                                                           \
    .role = {[ROLE_SYSTEM] = LLAMA3_ROLE("system"),                                                \
             [ROLE_USER] = LLAMA3_ROLE("user"),                                                    \
             [ROLE_ASSISTANT] = LLAMA3_ROLE("assistant")},                                         \
    .rules = FORM_TRIMS, .ask = LLAMA3_HEAD("assistant"),                                          \
    .needs = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"}
#define LLAMA31_SYSTEM                                                                             \
    LLAMA3_HEAD("system") "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

// A system message has no prefix there: its text opens a user's message.
#define MISTRAL_FORM(form_name, of_system, user, user_end, answer, answer_end)                     \
    .name = form_name, .begin = "{bos}",                                                           \
    .role = {[ROLE_SYSTEM] = {"", "\n\n"},                                                         \
             [ROLE_USER] = {user, user_end},                                                       \
             [ROLE_ASSISTANT] = {answer, answer_end}},                                             \
    .system = of_system, .ask = ""

static const struct Form forms[] = {
    {CHATML_FORM("chatml", NULL)},
    {CHATML_FORM("smollm2",
                 "You are a helpful AI assistant named SmolLM, trained by Hugging Face")},
    {CHATML_FORM("qwen2", "You are a helpful assistant.")},
    {QWEN_FORM("qwen2.5", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
               "")},
    {QWEN_FORM("qwen2.5-base", "You are a helpful assistant.", "")},
    {QWEN_FORM("qwen3", NULL, "<think>\n\n</think>\n\n"), .rules = FORM_THINKS},
    {QWEN_FORM("qwen3-2507", NULL, "")},
    {LLAMA3_FORM("llama3")},
    {LLAMA3_FORM("llama3.1"), .first_system = LLAMA31_SYSTEM, .default_system = ""},
    {LLAMA3_FORM("llama3.2"), .first_system = LLAMA31_SYSTEM, .default_system = ""},
    {MISTRAL_FORM("mistral-v0.1", SYSTEM_REFUSED, "[INST] ", " [/INST]", "", "{eos} "),
     .rules = FORM_ALTERNATES},
    {MISTRAL_FORM("mistral-v0.2", SYSTEM_REFUSED, "[INST] ", " [/INST]", "", "{eos}"),
     .rules = FORM_ALTERNATES},
    {MISTRAL_FORM("mistral-v1", SYSTEM_FIRST, " [INST] ", " [/INST]", " ", "{eos}"),
     .rules = FORM_ALTERNATES},
    {MISTRAL_FORM("mistral-v3", SYSTEM_LAST, "[INST] ", "[/INST]", " ", "{eos}"),
     .rules = FORM_ALTERNATES | FORM_TRIMS_ANSWER, .needs = {"[INST]", "[/INST]"}},
    {MISTRAL_FORM("mistral-nemo", SYSTEM_LAST, "[INST]", "[/INST]", "", "{eos}"),
     .rules = FORM_ALTERNATES, .needs = {"[INST]", "[/INST]"}},
    {.name = "zephyr",
     .role = {[ROLE_SYSTEM] = {"<|system|>\n", "{eos}\n"},
              [ROLE_USER] = {"<|user|>\n", "{eos}\n"},
              [ROLE_ASSISTANT] = {"<|assistant|>\n", "{eos}\n"}},
     .ask = "<|assistant|>\n"},
};

enum { NFORM = sizeof forms / sizeof forms[0] };

// The SHA-256 of a template's text, and its form.
static const struct {
    const char *hash, *name;
} templates[] = {
    // chatml: OpenHermes, Dolphin and many others
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3", "chatml"},
    {"58c1a1f04baa7adaeaba1f90267c3d57d9396f0c1f0129bdde9e76d3c6784af7", "chatml"},
    {"872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", "smollm2"},
    {"793202280c0910ab26bc6eb57c8212c2417324c6d8c4efd0d10d59092ab3e3eb", "qwen2"},
    {"a18cc698dd45623eb707279d08e66f7bb8d76afc89ead84016b88487b395b5cc", "qwen2.5"},
    {"7d6302983e64f35c4ad9459413ee827d5dcfa23ba5373f58cde030c9f724f7e8", "qwen2.5-base"},
    // Qwen3: as first published, and as it is now
    {"2df317a15cbc983d9602cc391d33be17237d47ec7eb11ead80fae277143958aa", "qwen3"},
    {"edcd73b0e30a780c1d6f3e060c07396def3c3fa55a2c55197b10f99d1dde83e1", "qwen3"},
    {"aa39eed4cbfdd57aeaab518e83d06945f00df6afefba6eb985b6b85060cade95", "qwen3-2507"},
    {"ba03a121d097859c7b5b9cd03af99aafe95275210d2876f642ad9929a150f122", "llama3"},
    {"99799a835a31e1d33c4a9c7ee8a0de3923b291a95155ed6dc8efcbd0fe1d0238", "llama3.1"}, // and 3.3
    {"0cac23ffd2b33ff7b039e17ee143a080053318146fdc788f1d49ed4745aa8683", "llama3.2"},
    // Mistral 7B and Mixtral: of 2023, as later mended, and with a system message
    {"7e995b379ec01747807246483647cd99030abf331653f1119e16d7ac041a3495", "mistral-v0.1"},
    {"26a59556925c987317ce5291811ba3b7f32ec4c647c400c6cc7e3a9993007ba7", "mistral-v0.2"},
    {"1c6594f8393552ef16bbf3ddecb67d8258fb8d66339a1a092a8f8496061f02d3", "mistral-v1"},
    {"9074ed36d7503f0f63bd70ef4a0db1e12ec90718aef446404917f5ee3216e2f3", "mistral-v3"},
    {"962c60d6f78274641b82606abbb59b4c5b1163fc7b9b8c5a0e2dcf70a55a79df", "mistral-nemo"},
    {"1127255163dd25a2fd472f9901035aa9e78dc77ca33efdd010f5c8ea87e5d436", "mistral-nemo"},
    // zephyr-7b-beta, TinyLlama-1.1B-Chat
    {"66291cf0045c2425a3a667cf3cbb7af2b11f09e025c02f97245323ab79119362", "zephyr"},
};

const struct Form *form_named(const char *name) {
    for (size_t i = 0; i < NFORM; i++)
        if (!strcmp(forms[i].name, name))
            return &forms[i];
    return NULL;
}

// Hashes \n (a newline in Jinja's strings) as a newline, and no newline at the very end, which
// Jinja drops.
const struct Form *form_of_template(const char *jinja) {
    struct Sha256 h;
    char hex[SHA256_HEX_BYTES];
    size_t n = strlen(jinja);
    n -= n && jinja[n - 1] == '\n';
    sha256_init(&h);
    for (size_t i = 0; i < n; i++) {
        bool escape = jinja[i] == '\\' && i + 1 < n && jinja[i + 1] == 'n';
        sha256_update(&h, escape ? "\n" : jinja + i, 1);
        i += escape;
    }
    sha256_hex(&h, hex);
    for (size_t i = 0; i < sizeof templates / sizeof templates[0]; i++)
        if (!strcmp(templates[i].hash, hex))
            return form_named(templates[i].name);
    return NULL;
}

const struct Form *form_at(size_t i) {
    return i < NFORM ? &forms[i] : NULL;
}

char *form_names(void) {
    char *names = base_format("%s", forms[0].name);
    for (size_t i = 1; i < NFORM; i++)
        base_append(&names, ", %s", forms[i].name);
    return names;
}
