// Conversations: each question is asked with what was said before, as far as the model sees, and
// what is left out are the fewest of the oldest turns; what is refused changes nothing; what is
// saved is read back as data; and lines that are commands.
#include "data/chat/dialog.h"
#include "data/chat/example.h"
#include "data/chat/template.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>

struct Fixture {
    struct Tokenizer *t;
    struct Template *template; // chatml
    char *folder;
};

static int set_up(void **state) {
    struct Fixture *f = base_alloc_zeroed(sizeof *f);
    struct Error e;
    assert_ok(tokenizer_open_json(&f->t, "tests/fixtures/bpe/qwen2/tokenizer.json", &e), &e);
    assert_ok(template_open(&f->template, f->t, "chatml", &e), &e);
    f->folder = scratch_make();
    *state = f;
    return 0;
}

static int tear_down(void **state) {
    struct Fixture *f = *state;
    template_close(f->template);
    tokenizer_close(f->t);
    scratch_remove(f->folder);
    free(f);
    return 0;
}

static struct Conversation *open_chat(const struct Fixture *f, const char *template,
                                      const char *system, size_t longest) {
    struct ConversationSpec spec = {f->t, template, system, longest};
    struct Conversation *c;
    struct Error e;
    assert_ok(conversation_open(&c, &spec, &e), &e);
    return c;
}

// The ids of messages that take turns, behind a system message unless that is NULL.
static struct Masked render(const struct Fixture *f, const char *system, const char *const *said,
                            size_t count) {
    struct Message messages[64];
    struct Masked m = {0};
    struct Error e;
    size_t n = 0;
    if (system)
        messages[n++] = (struct Message){ROLE_SYSTEM, system, strlen(system), false};
    for (size_t i = 0; i < count; i++)
        messages[n++] =
            (struct Message){i % 2 ? ROLE_ASSISTANT : ROLE_USER, said[i], strlen(said[i]), false};
    assert_ok(template_render(f->template, messages, n, true, &m, &e), &e);
    return m;
}

static void assert_ids(const struct Ids *ids, const struct Masked *m) {
    assert_int_equal(ids->count, m->ids.count);
    assert_memory_equal(ids->data, m->ids.data, ids->count * sizeof *ids->data);
}

static const char *const said[] = {"One?",  "Yes, one.", "And two, which is more?",
                                   "Two.",  "Three?",    "It is three, and three is more than two.",
                                   "Four?", "No.",       "And?"};
enum { SAID = sizeof said / sizeof *said, TURNS = SAID / 2 };

// Begins anew with the first questions and their answers. Returns how many were not too long.
static size_t talk(struct Conversation *c, size_t turns) {
    struct Ids prompt = {0};
    struct Error e;
    size_t left_out, i = 0;
    conversation_reset(c);
    for (; i < turns && !conversation_ask(c, said[2 * i], 0, &prompt, &left_out, &e); i++)
        conversation_answer(c, said[2 * i + 1], strlen(said[2 * i + 1]), false);
    ids_free(&prompt);
    return i;
}

// Asks the last question.
static size_t ask(struct Conversation *c, size_t answer, struct Ids *prompt) {
    struct Error e;
    size_t left_out;
    prompt->count = 0;
    assert_ok(conversation_ask(c, said[SAID - 1], answer, prompt, &left_out, &e), &e);
    return left_out;
}

TEST(a_question_is_asked_with_all_that_was_said) {
    const struct Fixture *f = *state;
    struct Ids prompt = {0};
    for (int s = 0; s < 2; s++) {
        const char *system = s ? "Be brief." : NULL;
        struct Conversation *c = open_chat(f, "chatml", system, SIZE_MAX);
        talk(c, TURNS);
        assert_int_equal(ask(c, SIZE_MAX - 1000, &prompt), 0);
        struct Masked m = render(f, system, said, SAID);
        assert_ids(&prompt, &m);
        masked_free(&m);
        conversation_close(c);
    }
    ids_free(&prompt);
}

// The first turn that question k is asked with, by trying all; n[i][k]: tokens from turn i on.
static size_t first_seen(size_t n[TURNS + 1][TURNS + 1], size_t first, size_t k, size_t answer,
                         size_t longest) {
    if (n[first][k] + size_max(answer, 1) <= longest)
        return first;
    for (size_t i = first; i < k; i++)
        if (n[i][k] + size_max(answer, longest / 2) <= longest)
            return i;
    while (first < k && n[first][k] + size_max(answer, 1) > longest)
        first++;
    return first;
}

// At each length of the model's sight, and each of the answer.
TEST(the_oldest_turns_are_left_out_down_to_half) {
    const struct Fixture *f = *state;
    size_t n[TURNS + 1][TURNS + 1];
    struct Masked m[TURNS + 1];
    struct Ids prompt = {0};
    unsigned seen = 0;
    for (size_t i = 0; i <= TURNS; i++)
        for (size_t k = i; k <= TURNS; k++) {
            m[i] = render(f, "Be brief.", said + 2 * i, 2 * (k - i) + 1);
            n[i][k] = m[i].ids.count;
            if (k < TURNS)
                masked_free(&m[i]);
        }
    for (size_t longest = n[TURNS][TURNS] + 1; longest < n[0][TURNS] + 20; longest++)
        for (size_t answer = 0; answer < 16; answer++) {
            struct Conversation *c = open_chat(f, "chatml", "Be brief.", longest);
            if (talk(c, TURNS) == TURNS) {
                size_t first = 0;
                for (size_t k = 0; k <= TURNS; k++)
                    first = first_seen(n, first, k, k < TURNS ? 0 : answer, longest);
                assert_int_equal(ask(c, answer, &prompt), first);
                assert_ids(&prompt, &m[first]);
                seen |= 1u << first;
            }
            conversation_close(c);
        }
    assert_int_equal(seen, (2u << TURNS) - 1);
    for (size_t i = 0; i <= TURNS; i++)
        masked_free(&m[i]);
    ids_free(&prompt);
}

// What the model saw of the conversation begins the next prompt, but for few questions.
TEST(turns_are_not_left_out_with_each_question) {
    const struct Fixture *f = *state;
    enum { ASKED = 100 };
    struct Conversation *c = open_chat(f, "chatml", NULL, 200);
    struct Ids prompt = {0};
    size_t before = 0, times = 0;
    for (size_t i = 0; i < ASKED; i++) {
        size_t left_out = ask(c, 8, &prompt);
        assert_true(left_out >= before);
        times += left_out > before;
        before = left_out;
        conversation_answer(c, "No.", 3, false);
    }
    assert_true(before > ASKED / 2);
    assert_true(times > 3 && times < ASKED / 4);
    conversation_close(c);
    ids_free(&prompt);
}

TEST(what_is_refused_changes_nothing) {
    const struct Fixture *f = *state;
    struct Masked alone = render(f, NULL, said + SAID - 1, 1);
    struct Ids prompt = {0}, again = {0};
    struct Error e;
    size_t left_out, longest = alone.ids.count + 8;
    struct Conversation *c = open_chat(f, "chatml", NULL, longest);
    char *numbers = base_format("E_CHAT_TOO_LONG %zu", longest);
    char *long_text = base_format("%0*d", 400, 7);
    assert_int_equal(ask(c, 4, &prompt), 0);
    conversation_reset(c);
    assert_error(conversation_ask(c, long_text, 4, &again, &left_out, &e), -EINVAL, &e, numbers);
    struct Masked m = render(f, NULL, (const char *const[]){long_text}, 1);
    free(numbers);
    numbers = base_format("E_CHAT_TOO_LONG %zu tokens", m.ids.count);
    assert_true(error_is(&e, numbers));
    assert_error(conversation_ask(c, "a\xff", 4, &again, &left_out, &e), -EINVAL, &e,
                 "E_UTF8 byte 2 (0xff)");
    assert_int_equal(again.count, 0);
    assert_int_equal(ask(c, 4, &again), 0);
    assert_int_equal(again.count, prompt.count);
    assert_memory_equal(again.data, prompt.data, again.count * sizeof *again.data);
    conversation_close(c);

    c = open_chat(f, "chatml", NULL, alone.ids.count); // one token less than is needed
    assert_error(conversation_ask(c, said[SAID - 1], 1, &again, &left_out, &e), -EINVAL, &e,
                 "E_CHAT_TOO_LONG");
    conversation_close(c);
    c = open_chat(f, "chatml", NULL, alone.ids.count + 1); // the answer has what is left
    assert_int_equal(ask(c, 100, &again), 0);
    conversation_close(c);
    masked_free(&alone);
    masked_free(&m);
    free(long_text);
    free(numbers);
    ids_free(&prompt);
    ids_free(&again);
}

TEST(a_conversation_begins_anew) {
    const struct Fixture *f = *state;
    struct Masked brief = render(f, "Be brief.", said + SAID - 1, 1);
    struct Masked none = render(f, NULL, said + SAID - 1, 1);
    struct Ids prompt = {0};
    struct Error e;
    struct Conversation *c = open_chat(f, "chatml", "Be brief.", SIZE_MAX);
    talk(c, 2);
    conversation_reset(c);
    ask(c, 1, &prompt);
    assert_ids(&prompt, &brief);
    talk(c, 2);
    assert_ok(conversation_set_system(c, "", &e), &e);
    ask(c, 1, &prompt);
    assert_ids(&prompt, &none);
    talk(c, 2);
    assert_ok(conversation_set_system(c, "Be brief.", &e), &e);
    ask(c, 1, &prompt);
    assert_ids(&prompt, &brief);
    talk(c, 1);
    assert_error(conversation_set_system(c, "\xff", &e), -EINVAL, &e, "E_UTF8 /system");
    ask(c, 1, &prompt);
    assert_true(prompt.count > brief.ids.count); // still with the turn
    conversation_close(c);
    masked_free(&brief);
    masked_free(&none);
    ids_free(&prompt);
}

TEST(a_template_may_take_no_system_message) {
    const struct Fixture *f = *state;
    static const char form[] = "{\"user\": {\"prefix\": \"\", \"suffix\": \"\"}, \"assistant\": "
                               "{\"prefix\": \"\", \"suffix\": \"<|im_end|>\"}}";
    char *path = scratch_write(f->folder, "form.json", form, sizeof form - 1);
    struct Ids before = {0}, after = {0};
    struct Error e;
    struct Conversation *c = open_chat(f, path, NULL, SIZE_MAX);
    talk(c, 1);
    ask(c, 1, &before);
    talk(c, 1);
    assert_true(conversation_set_system(c, "Be brief.", &e) < 0);
    ask(c, 1, &after);
    assert_int_equal(after.count, before.count);
    conversation_close(c);
    ids_free(&before);
    ids_free(&after);
    unlink(path);
    free(path);
}

// Bytes that a model draws and that are no text do not end the conversation.
TEST(an_answer_may_be_anything) {
    const struct Fixture *f = *state;
    struct Conversation *c = open_chat(f, "chatml", NULL, SIZE_MAX);
    struct Ids prompt = {0};
    struct Error e;
    size_t left_out;
    assert_ok(conversation_ask(c, "A", 0, &prompt, &left_out, &e), &e);
    conversation_answer(c, "b\xff\0c", 4, false);
    assert_ok(conversation_ask(c, "D", 0, &prompt, &left_out, &e), &e);
    conversation_answer(c, "", 0, false);
    ask(c, 1, &prompt);
    struct Masked m = render(f, NULL,
                             (const char *const[]){"A",
                                                   "b\xef\xbf\xbd\xef\xbf\xbd"
                                                   "c",
                                                   "D", "", said[SAID - 1]},
                             5);
    assert_ids(&prompt, &m);
    conversation_close(c);
    masked_free(&m);
    ids_free(&prompt);
}

// As Qwen3's template has it in transformers: earlier answers stand there without their thoughts.
TEST(thoughts_are_left_out_where_the_template_has_none) {
    const struct Fixture *f = *state;
    static const char thought[] = "<think>\nIs it?\n</think>\n\nYes.";
    struct Conversation *c = open_chat(f, "qwen3", NULL, SIZE_MAX);
    struct Ids prompt = {0}, plain = {0}, first = {0};
    struct Error e;
    size_t left_out;
    for (int i = 0; i < 2; i++) {
        assert_ok(conversation_ask(c, "A", 0, &first, &left_out, &e), &e);
        conversation_answer(c, i ? "Yes." : thought, i ? 4 : sizeof thought - 1, false);
        ask(c, 1, i ? &plain : &prompt);
        conversation_reset(c);
    }
    assert_int_equal(prompt.count, plain.count);
    assert_memory_equal(prompt.data, plain.data, plain.count * sizeof *plain.data);
    conversation_close(c);
    c = open_chat(f, "chatml", NULL, SIZE_MAX);
    assert_ok(conversation_ask(c, "A", 0, &prompt, &left_out, &e), &e);
    conversation_answer(c, thought, sizeof thought - 1, false);
    ask(c, 1, &prompt);
    struct Masked m = render(f, NULL, (const char *const[]){"A", thought, said[SAID - 1]}, 3);
    assert_ids(&prompt, &m);
    masked_free(&m);
    conversation_close(c);
    ids_free(&prompt);
    ids_free(&plain);
    ids_free(&first);
}

// ---- saving -------------------------------------------------------------------------------------

static int take(void *context, const struct Example *example, struct Error *e) {
    struct Ids *ids = context;
    (void)e;
    for (size_t i = 0; i < example->count; i++)
        ids_append(ids, example->ids[i]);
    return 0;
}

TEST(what_is_saved_is_read_as_data) {
    const struct Fixture *f = *state;
    struct Conversation *c = open_chat(f, "chatml", "Be \"brief\".\n\tNow.", SIZE_MAX);
    struct ChatSpec chat = {.name = "chatml"};
    struct Ids ids = {0}, prompt = {0};
    struct Error e;
    size_t bytes, left_out, cut;
    char *path = base_format("%s/talk.jsonl", f->folder);
    assert_error(conversation_save(c, path, &cut, &e), -EINVAL, &e, "E_CONVERSATION_ANSWER");
    talk(c, 2);
    assert_ok(conversation_ask(c, "Żółw \\ 😀?", 0, &prompt, &left_out, &e), &e);
    conversation_answer(c, "\x01 \"yes\"\r\n", 9, false);
    assert_ok(conversation_save(c, path, &cut, &e), &e);
    assert_int_equal(scratch_count_files(f->folder), 1);
    char *text = scratch_read(f->folder, "talk.jsonl", &bytes);
    assert_ptr_equal(memchr(text, '\n', bytes), text + bytes - 1);
    assert_ok(examples_read(path, "--data", f->t, &chat, take, &ids, &e), &e);
    const char *const all[] = {said[0], said[1], said[2], said[3], "Żółw \\ 😀?", "\x01 \"yes\"\r\n",
                               ""};
    struct Masked m = render(f, "Be \"brief\".\n\tNow.", all, 7),
                  tail = render(f, NULL, all + 6, 1);
    m.ids.count -= tail.ids.count; // but for a question behind it
    assert_ids(&ids, &m);
    // Another file of this name stays as it is.
    talk(c, 1);
    assert_error(conversation_save(c, path, &cut, &e), -EEXIST, &e, "E_FILE_EXISTS talk.jsonl");
    char *same = scratch_read(f->folder, "talk.jsonl", &left_out);
    assert_int_equal(left_out, bytes);
    assert_memory_equal(same, text, bytes);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nowhere", path), 0); // nor is a link followed
    assert_error(conversation_save(c, path, &cut, &e), -EEXIST, &e, "E_FILE_EXISTS");
    assert_int_equal(unlink(path), 0);
    conversation_close(c);
    masked_free(&m);
    masked_free(&tail);
    ids_free(&ids);
    ids_free(&prompt);
    free(same);
    free(text);
    free(path);
}

// A model that is trained on an answer that is cut learns to end there.
TEST(answers_that_are_cut_are_not_saved) {
    const struct Fixture *f = *state;
    struct Conversation *c = open_chat(f, "chatml", NULL, SIZE_MAX);
    struct Ids prompt = {0};
    struct Error e;
    char *path = base_format("%s/cut.jsonl", f->folder);
    size_t bytes, cut;
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            assert_error(conversation_save(c, path, &cut, &e), -EINVAL, &e,
                         "E_CONVERSATION_ANSWER");
        ask(c, 0, &prompt);
        conversation_answer(c, i == 1 ? "Yes" : "No", 2 + (i == 1), i != 1);
    }
    assert_ok(conversation_save(c, path, &cut, &e), &e);
    assert_int_equal(cut, 2);
    char *text = scratch_read(f->folder, "cut.jsonl", &bytes);
    assert_string_equal(text, "{\"messages\":[{\"role\":\"user\",\"content\":\"And?\"},"
                              "{\"role\":\"assistant\",\"content\":\"Yes\"}]}\n");
    conversation_close(c);
    ids_free(&prompt);
    unlink(path);
    free(text);
    free(path);
}

TEST(a_file_that_cannot_be_written_is_not_there) {
    const struct Fixture *f = *state;
    struct Conversation *c = open_chat(f, "chatml", NULL, SIZE_MAX);
    struct Error e;
    struct rlimit all, few;
    size_t cut;
    char *path = base_format("%s/full.jsonl", f->folder);
    talk(c, 2);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &all), 0);
    few = (struct rlimit){20, all.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    int err = conversation_save(c, path, &cut, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &all), 0);
    assert_error(err, -EFBIG, &e, "E_FILE_WRITE full.jsonl");
    assert_int_equal(scratch_count_files(f->folder), 0);
    assert_ok(conversation_save(c, path, &cut, &e), &e);
    unlink(path);
    conversation_close(c);
    free(path);
}

// ---- lines --------------------------------------------------------------------------------------

TEST(lines_are_questions_or_commands) {
    static const struct {
        const char *line;
        enum ChatKind kind;
        const char *rest;
    } rows[] = {{"", CHAT_EMPTY, ""},
                {" \t\r\n", CHAT_EMPTY, ""},
                {"Is water wet?\r\n", CHAT_QUESTION, "Is water wet?"},
                {"  a / b  ", CHAT_QUESTION, "a / b"},
                {"/system Be brief.\n", CHAT_SYSTEM, "Be brief."},
                {"/system", CHAT_SYSTEM, ""},
                {"/systems x", CHAT_UNKNOWN, "/systems x"},
                {"/reset \n", CHAT_RESET, ""},
                {"/reset it", CHAT_UNKNOWN, "/reset it"},
                {"/save  a b.jsonl", CHAT_SAVE, "a b.jsonl"},
                {"/save", CHAT_UNKNOWN, "/save"},
                {"/help", CHAT_HELP, ""},
                {"/help me", CHAT_UNKNOWN, "/help me"},
                {"/quit\n", CHAT_QUIT, ""},
                {"/bye", CHAT_UNKNOWN, "/bye"},
                {"/etc/hosts lacks a name", CHAT_QUESTION, "/etc/hosts lacks a name"},
                {"/2 is a half", CHAT_QUESTION, "/2 is a half"},
                {"/", CHAT_QUESTION, "/"},
                {"//etc is what?", CHAT_QUESTION, "/etc is what?"},
                {"//reset", CHAT_QUESTION, "/reset"}};
    struct Error e;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *line = base_format("%s", rows[i].line);
        struct ChatLine read = chat_line_read(line);
        if (read.kind != rows[i].kind || strcmp(read.rest, rows[i].rest) != 0)
            fail_msg("'%s' is of kind %d, '%s'", rows[i].line, read.kind, read.rest);
        free(line);
    }
    struct ChatLine bye = {CHAT_UNKNOWN, "/bye\x1b"};
    assert_error(chat_line_refuse(&bye, &e), -EINVAL, &e, "E_CHAT_COMMAND /bye?: expected /system");
}

AROUND_ALL(set_up, tear_down);
