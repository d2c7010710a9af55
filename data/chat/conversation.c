// A conversation with a chat model: see conversation.h.
#include "data/chat/conversation.h"
#include "data/chat/template.h"
#include "data/file.h"
#include "data/json.h"
#include "data/text/printed.h"
#include "data/text/text.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct Turn {
    char *question, *answer; // UTF-8; NULL: there is no answer yet
    bool cut;                // the model has not ended the answer
};

struct Conversation {
    const struct Tokenizer *tokenizer;
    struct Template *template;
    size_t longest;
    char *system; // NULL: the template's own
    struct Turn *turn;
    size_t count, room;
    size_t first; // the first turn that the model sees
};

static int check_text(const char *text, const char *what, struct Error *e) {
    size_t bytes = strlen(text), bad = text_find_invalid(text, bytes);
    return bad == bytes ? 0
                        : error_set(e, -EINVAL, E_UTF8,
                                    "%s: byte %zu (0x%02x) is not UTF-8; convert the text, for "
                                    "example with iconv",
                                    what, bad + 1, (unsigned char)text[bad]);
}

int conversation_open(struct Conversation **out, const struct ConversationSpec *spec,
                      struct Error *e) {
    struct Template *template = NULL;
    *out = NULL;
    int err = template_open(&template, spec->tokenizer, spec->template, e);
    if (err)
        return err;
    *out = base_alloc_zeroed(sizeof **out);
    **out = (struct Conversation){
        .tokenizer = spec->tokenizer, .template = template, .longest = spec->longest};
    if (spec->system)
        (*out)->system = base_format("%s", spec->system);
    return 0;
}

void conversation_close(struct Conversation *c) {
    if (!c)
        return;
    conversation_reset(c);
    template_close(c->template);
    free(c->turn);
    free(c->system);
    free(c);
}

void conversation_append_stops(const struct Conversation *c, struct Ids *stops) {
    int32_t ends[TEMPLATE_STOPS];
    for (size_t i = 0, n = template_stops(c->template, ends); i < n; i++)
        ids_append(stops, ends[i]);
}

// ---- a question ---------------------------------------------------------------------------------

static struct Message message(enum Role role, const char *text) {
    return (struct Message){role, text, strlen(text), false};
}

// Renders the turns from `first` on, and the question, into `out`.
static int render_turns(const struct Conversation *c, const char *system, size_t first,
                        const char *question, struct Masked *out, struct Error *e) {
    struct Message *messages = base_alloc((2 * (c->count - first) + 2) * sizeof *messages);
    size_t n = 0;
    if (system)
        messages[n++] = message(ROLE_SYSTEM, system);
    for (size_t i = first; i < c->count; i++) {
        messages[n++] = message(ROLE_USER, c->turn[i].question);
        messages[n++] = message(ROLE_ASSISTANT, c->turn[i].answer);
    }
    messages[n++] = message(ROLE_USER, question);
    out->ids.count = 0;
    int err = template_render(c->template, messages, n, true, out, e);
    free(messages);
    return err;
}

// True if the prompt leaves room for `answer` tokens.
static bool has_room(const struct Conversation *c, const struct Masked *prompt, size_t answer) {
    return prompt->ids.count < c->longest && answer <= c->longest - prompt->ids.count;
}

// Moves *first on to the first turn such that the turns from there on and the question leave `room`
// tokens free, or to c->count, without any turn; and renders them. Each turn takes tokens, so a
// search by halves finds it.
static int drop_turns(const struct Conversation *c, const char *question, size_t room,
                      struct Masked *out, size_t *first, struct Error *e) {
    // Turns before `low` are too early, `high` is not; `out` has the turns from `at` on.
    size_t low = *first + 1, high = c->count, at = low;
    int err = render_turns(c, c->system, at, question, out, e);
    while (!err && low < high) {
        if (has_room(c, out, room))
            high = at;
        else
            low = at + 1;
        size_t half = low + (high - low) / 2;
        if (half != at)
            err = render_turns(c, c->system, half, question, out, e);
        at = half;
    }
    *first = at;
    return err;
}

// Renders the turns from *first on, and the question. *first is c->first if `answer` tokens fit
// then. Else turns go until half of what the model sees, or `answer` tokens if that is more, is
// free: it reads the rest anew, which it should not at each question. If no turn would be left, as
// few go as the answer needs.
static int fit_turns(const struct Conversation *c, const char *question, size_t answer,
                     struct Masked *out, size_t *first, struct Error *e) {
    *first = c->first;
    int err = render_turns(c, c->system, *first, question, out, e);
    if (err || has_room(c, out, answer) || *first == c->count)
        return err;
    err = drop_turns(c, question, size_max(answer, c->longest / 2), out, first, e);
    if (err || *first < c->count)
        return err;
    *first = c->first;
    return drop_turns(c, question, answer, out, first, e);
}

int conversation_ask(struct Conversation *c, const char *question, size_t answer_tokens,
                     struct Ids *prompt, size_t *left_out, struct Error *e) {
    struct Masked rendered = {0};
    int err = check_text(question, "the question", e);
    if (!err)
        err = fit_turns(c, question, answer_tokens, &rendered, left_out, e);
    if (!err && rendered.ids.count >= c->longest)
        err = error_set(e, -EINVAL, E_CHAT_TOO_LONG,
                        "the question has %zu tokens in its template, but the model sees at most "
                        "%zu, and an answer needs one; shorten it, or raise --seq-len",
                        rendered.ids.count, c->longest);
    if (!err) {
        for (size_t i = 0; i < rendered.ids.count; i++)
            ids_append(prompt, rendered.ids.data[i]);
        c->turn = base_grow(c->turn, c->count, &c->room, sizeof *c->turn, "turns");
        c->turn[c->count++] = (struct Turn){base_format("%s", question), NULL, false};
        c->first = *left_out;
    }
    masked_free(&rendered);
    return err;
}

// ---- what follows it ----------------------------------------------------------------------------

void conversation_answer(struct Conversation *c, const char *text, size_t bytes, bool cut) {
    char *answer = printed_mend(text, bytes), *from = answer;
    if (template_drops_thoughts(c->template))
        for (char *end; (end = strstr(from, "</think>"));)
            from = end + strlen("</think>") + strspn(end + strlen("</think>"), "\n");
    c->turn[c->count - 1].answer = base_format("%s", from);
    c->turn[c->count - 1].cut = cut;
    free(answer);
}

void conversation_reset(struct Conversation *c) {
    for (; c->count; c->count--) {
        free(c->turn[c->count - 1].question);
        free(c->turn[c->count - 1].answer);
    }
    c->first = 0;
}

int conversation_set_system(struct Conversation *c, const char *system, struct Error *e) {
    struct Masked tried = {0};
    const char *new_system = *system ? system : NULL;
    int err = check_text(system, "/system", e);
    struct Conversation without_turns = {.tokenizer = c->tokenizer, .template = c->template};
    if (!err)
        err = render_turns(&without_turns, new_system, 0, "?", &tried, e);
    masked_free(&tried);
    if (err)
        return err;
    conversation_reset(c);
    free(c->system);
    c->system = new_system ? base_format("%s", new_system) : NULL;
    return 0;
}

// ---- saving -------------------------------------------------------------------------------------

static void add_message(cJSON *list, enum Role role, const char *text) {
    cJSON *m = cJSON_CreateObject();
    if (!cJSON_AddStringToObject(m, "role", role_names[role]) ||
        !cJSON_AddStringToObject(m, "content", text) || !cJSON_AddItemToArray(list, m))
        base_out_of_memory(0, "a conversation");
}

// Returns the line of all turns that are not cut, with its newline; free() it.
static char *make_json_line(const struct Conversation *c) {
    cJSON *root = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(root, "messages");
    if (c->system)
        add_message(list, ROLE_SYSTEM, c->system);
    for (size_t i = 0; i < c->count; i++) {
        if (c->turn[i].cut)
            continue;
        add_message(list, ROLE_USER, c->turn[i].question);
        add_message(list, ROLE_ASSISTANT, c->turn[i].answer);
    }
    char *line = json_line_text(root);
    base_append(&line, "\n");
    return line;
}

// Writes a file under a name that is free, and stays free until the file is complete.
static int write_new_file(const char *path, const char *text, struct Error *e) {
    struct AtomicFile a;
    int err = file_check_new(path, "/save ", "a file", e);
    if (!err)
        err = atomic_file_open(&a, path, e);
    if (err)
        return err;
    err = file_write(a.fd, path, text, strlen(text), e);
    if (!err && fsync(a.fd))
        err = error_io(e, -errno, E_FILE_WRITE, "cannot write %s", path);
    if (!err)
        err = file_rename_new(a.tmp_path, path, "a file", e);
    if (err) {
        atomic_file_abandon(&a);
        return err;
    }
    atomic_folder_close(&a);
    return file_sync_name(path, e);
}

int conversation_save(const struct Conversation *c, const char *path, size_t *cut,
                      struct Error *e) {
    *cut = 0;
    for (size_t i = 0; i < c->count; i++)
        *cut += c->turn[i].cut;
    if (*cut == c->count)
        return error_set(e, -EINVAL, E_CONVERSATION_ANSWER,
                         "/save %s: the conversation has no answer that is not cut; ask first, or "
                         "raise --sample-tokens",
                         path);
    char *line = make_json_line(c);
    int err = write_new_file(path, line, e);
    free(line);
    return err;
}
