// Reads a line as an example: see line.h. Next: shape.c, message.c.
//
// The names of a line's members, or a map, decide its shape. Members that no shape has ("id",
// "source") are skipped, and so are nulls. But members that would change what is learned (tools, a
// rejected answer) are refused by name.
#include "data/chat/line.h"
#include "data/text/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The names of a line's members, for an error line: the first few.
struct KeyNames {
    char text[200];
};

static void add_name(struct KeyNames *n, const struct JsonSlice *name) {
    size_t at = strlen(n->text);
    int left = (int)(sizeof n->text - at);
    if (snprintf(n->text + at, (size_t)left, "%s\"%s\"", at ? ", " : "",
                 json_shown(name->text).text) >= left)
        n->text[at] = 0;
}

// The state of line_read.
struct LineReading {
    struct Line *line;
    const struct DataMap *map;
    struct Scan scan;
    struct KeyNames names;
    unsigned seen, has; // 1 << enum Member: present, also as null; present with a value
    struct JsonSlice text[NMEMBER];
    const char *other[NMEMBER]; // the type of a member that is no text: "a list", ...
    struct {
        size_t begin, count;
    } message_range[NMEMBER];     // the messages of a member, in line->messages; count 0: none
    struct JsonShown unsupported; // a filled member that no conversation may have, such as "tools"
    struct JsonShown inner;       // a member of no shape that is a list of objects
};

// ---- members that are refused -------------------------------------------------------------------

bool line_read_empty(struct Scan *s) {
    const char *other = scan_other_type(s);
    struct JsonSlice text = {0};
    char *at = s->at;
    if (!other)
        return scan_text(s, &text, "expected a JSON value") &&
               (!text.bytes || !strcmp(text.text, "[]"));
    if (scan_consume(s, '[') && scan_consume(s, ']'))
        return true;
    s->at = at;
    if (scan_consume(s, '{') && scan_consume(s, '}'))
        return true;
    s->at = at;
    scan_skip(s, NULL);
    return false;
}

// True if the next value is a list whose first element is an object.
static bool is_list_of_objects(struct Scan *s) {
    char *at = s->at;
    bool objects = scan_consume(s, '[') && scan_consume(s, '{');
    s->at = at;
    return objects;
}

// Reads a null, or the value of a member that no shape has. Refuses preferences, unless a map says
// what to learn.
static int read_ignored_member(struct LineReading *r, const struct JsonSlice *name, bool is_null,
                               struct Error *e) {
    struct Scan *s = &r->scan;
    enum Refusal refusal = is_null ? REFUSE_NEVER : member_refusal(name);
    bool is_false = !is_null && s->at < s->end && *s->at == 'f'; // after any white space
    if (is_list_of_objects(s))
        r->inner = json_shown(name->text);
    if (refusal == REFUSE_FILLED && !line_read_empty(s) && !*r->unsupported.text)
        r->unsupported = json_shown(name->text);
    if (refusal != REFUSE_FILLED)
        scan_skip(s, NULL);
    if (s->wrong || r->map)
        return 0;
    if (refusal == REFUSE_FALSE && is_false)
        return error_set(e, -EINVAL, E_EXAMPLE_PREFERENCE,
                         "\"%s\" is false: an answer that is not to be learned, for preference "
                         "tuning (KTO), which is not supported; leave such lines out, or say by "
                         "--data-map what to learn",
                         json_shown(name->text).text);
    if (refusal == REFUSE_PREFERENCE)
        return error_set(e, -EINVAL, E_EXAMPLE_PREFERENCE,
                         "it has \"%s\", for preference tuning (DPO), which is not supported; "
                         "--data-map says what to learn of it, such as "
                         "prompt=prompt,completion=chosen",
                         json_shown(name->text).text);
    return 0;
}

// ---- members that a shape has -------------------------------------------------------------------

// True if the value of m, of type `other`, is a list of messages. A prompt or completion is one if
// it begins with an object (TRL); other lists may be anything, and matter only if they are needed.
static bool is_message_list(struct Scan *s, enum Member m, const char *other) {
    if (!other || strcmp(other, "a list") != 0)
        return false;
    return m == MEMBER_MESSAGES || m == MEMBER_CONVERSATIONS ||
           (is_list_of_objects(s) && (m == MEMBER_PROMPT || m == MEMBER_COMPLETION));
}

static int read_member(struct LineReading *r, const struct JsonSlice *name, struct Error *e) {
    struct Scan *s = &r->scan;
    enum Member m = r->map ? data_map_find(r->map, name) : member_named(name);
    const char *other = scan_other_type(s);
    bool is_null = other && !strcmp(other, "null"); // like an absent member
    r->seen |= 1u << m;
    if (!m || is_null)
        return read_ignored_member(r, name, is_null, e);
    if (r->has >> m & 1)
        return error_set(e, -EINVAL, E_JSON_DUPLICATE_KEY,
                         "\"%s\" is there twice; keep one of them", json_shown(name->text).text);
    r->has |= 1u << m;
    r->other[m] = other;
    if (is_message_list(s, m, other)) {
        r->message_range[m].begin = r->line->count;
        int err = line_read_messages(r->line, s, e);
        r->message_range[m].count = r->line->count - r->message_range[m].begin;
        return err;
    }
    if (other)
        scan_skip(s, NULL);
    else
        scan_text(s, &r->text[m], "expected a JSON value");
    return 0;
}

// Returns the name of a member in the line.
static struct JsonShown get_member_name(const struct LineReading *r, enum Member m) {
    for (size_t i = 0; r->map && i < r->map->count; i++)
        if (r->map->entry[i].target == m)
            return json_shown(r->map->entry[i].name.text);
    return json_shown(member_names[m]);
}

// Checks that the line has all members that the map names; a task's optional ones may be null.
static int check_map(const struct LineReading *r, struct Error *e) {
    for (size_t i = 0; i < r->map->count; i++) {
        enum Member m = r->map->entry[i].target;
        bool may_lack = m == MEMBER_INPUT || m == MEMBER_SYSTEM;
        if (!((may_lack ? r->seen : r->has) >> m & 1))
            return error_set(e, -EINVAL, E_EXAMPLE_MEMBER,
                             "it has no \"%s\", which --data-map takes for %s; it has %s; mend "
                             "--data-map, or leave out the line",
                             get_member_name(r, m).text, member_names[m],
                             *r->names.text ? r->names.text : "no member");
    }
    return 0;
}

static int refuse_shapeless(const struct LineReading *r, struct Error *e) {
    char *more = *r->inner.text
                     ? base_format("; where \"%s\" is the list of examples, write it alone into a "
                                   "file, as jq '.\"%s\"' does",
                                   r->inner.text, r->inner.text)
                     : base_format("%s", "");
    int err =
        error_set(e, -EINVAL, E_EXAMPLE_KIND,
                  "it has %s, and no known member to learn from; expected \"messages\", "
                  "\"conversations\", \"text\", two such as \"prompt\" and \"completion\" or "
                  "\"instruction\" and \"output\", or --data-map prompt=NAME,completion=NAME%s",
                  *r->names.text ? r->names.text : "no member", more);
    free(more);
    return err;
}

static int choose_shape(struct LineReading *r, struct Error *e) {
    bool ambiguous = false;
    if (r->map && check_map(r, e))
        return -EINVAL;
    r->line->shape = r->map ? r->map->shape : shape_find(r->has, &ambiguous);
    if (ambiguous)
        return error_set(e, -EINVAL, E_EXAMPLE_KIND,
                         "among its members %s are those of two kinds of example; remove the ones "
                         "of one kind, or choose, for example by --data-map "
                         "prompt=NAME,completion=NAME",
                         r->names.text);
    if (!r->line->shape)
        return refuse_shapeless(r, e);
    bool converses = r->line->shape->kind == LINE_MESSAGES || r->line->shape->kind == LINE_TASK;
    if (converses && *r->unsupported.text)
        return error_set(e, -EINVAL, E_EXAMPLE_UNSUPPORTED,
                         "it has \"%s\", which is not supported, although the question depends on "
                         "it; leave out the line, or the member if it does not matter",
                         r->unsupported.text);
    return 0;
}

// Sets *text to the text of a member that the shape has; for MEMBER_NONE to an empty one.
static int read_text(const struct LineReading *r, enum Member m, struct JsonSlice *text,
                     struct Error *e) {
    *text = m ? r->text[m] : (struct JsonSlice){0};
    return m && r->other[m] ? error_set(e, -EINVAL, E_EXAMPLE_TYPE, "\"%s\" is %s; expected a text",
                                        get_member_name(r, m).text, r->other[m])
                            : 0;
}

// Appends the messages of a member to the line's.
static void copy_messages(const struct LineReading *r, enum Member m, bool in_prompt) {
    for (size_t i = 0; i < r->message_range[m].count; i++) {
        struct Message *added = line_add_message(r->line);
        *added = r->line->messages[r->message_range[m].begin + i];
        added->in_prompt = in_prompt;
    }
}

// Keeps only the messages of member `prompt`, which may be MEMBER_NONE, and behind them those of m.
static void keep_messages(const struct LineReading *r, enum Member prompt, enum Member m) {
    struct Line *line = r->line;
    size_t read = line->count;
    copy_messages(r, prompt, true);
    copy_messages(r, m, false);
    line->count -= read;
    if (line->count)
        memmove(line->messages, line->messages + read, line->count * sizeof *line->messages);
}

static int check_conversation(const struct LineReading *r, enum Member m, struct Error *e) {
    const struct Line *line = r->line;
    bool answer = false;
    if (!r->other[m] || strcmp(r->other[m], "a list") != 0)
        return error_set(e, -EINVAL, E_EXAMPLE_TYPE, "\"%s\" is %s; expected a list of messages",
                         get_member_name(r, m).text, r->other[m] ? r->other[m] : "a text");
    for (size_t i = 0; i < line->count; i++)
        answer |= line->messages[i].role == ROLE_ASSISTANT && !line->messages[i].in_prompt;
    if (!line->count)
        return error_set(e, -EINVAL, E_CONVERSATION_ANSWER,
                         "the conversation is empty; expected a message of the role assistant");
    return answer ? 0
                  : error_set(e, -EINVAL, E_CONVERSATION_ANSWER,
                              "the conversation has no answer; expected a message of the role "
                              "assistant");
}

void line_add_system(struct Line *line, const char *text, size_t bytes) {
    if (!bytes || line->messages[0].role == ROLE_SYSTEM)
        return;
    line_add_message(line);
    memmove(line->messages + 1, line->messages, (line->count - 1) * sizeof *line->messages);
    line->messages[0] = (struct Message){ROLE_SYSTEM, text, bytes, false};
}

static int read_conversation(const struct LineReading *r, struct Error *e) {
    struct Line *line = r->line;
    bool of_completion = line->shape == &shape_prompt_of_messages;
    enum Member m = of_completion                   ? MEMBER_COMPLETION
                    : r->has >> MEMBER_MESSAGES & 1 ? MEMBER_MESSAGES
                                                    : MEMBER_CONVERSATIONS;
    keep_messages(r, of_completion ? MEMBER_PROMPT : MEMBER_NONE, m);
    int err = check_conversation(r, m, e);
    if (!err)
        line_add_system(line, line->system.text, line->system.bytes);
    return err;
}

static int read_shape(const struct LineReading *r, struct Error *e) {
    struct Line *line = r->line;
    if (line->shape->kind == LINE_PROMPT && r->message_range[MEMBER_PROMPT].count &&
        r->message_range[MEMBER_COMPLETION].count)
        line->shape = &shape_prompt_of_messages;
    const struct Shape *shape = line->shape;
    bool converses = shape->kind == LINE_MESSAGES || shape->kind == LINE_TASK;
    int err = read_text(r, shape->prompt, &line->prompt, e);
    if (!err)
        err = read_text(r, shape->input, &line->input, e);
    if (!err)
        err = read_text(r, shape->answer, &line->answer, e);
    if (!err)
        err = read_text(r, converses ? MEMBER_SYSTEM : MEMBER_NONE, &line->system, e);
    return err || shape->kind != LINE_MESSAGES ? err : read_conversation(r, e);
}

int line_read(struct Line *line, const struct DataMap *map, char *text, size_t bytes,
              struct Error *e) {
    struct LineReading r = {.line = line, .map = map, .scan = scan_line(text, bytes)};
    struct JsonSlice name;
    bool first = true;
    int err = 0;
    line->count = 0;
    scan_expect(&r.scan, '{', "expected a JSON object");
    while (!err && scan_member(&r.scan, &first, &name)) {
        add_name(&r.names, &name);
        err = read_member(&r, &name, e);
    }
    if (r.scan.wrong || (!err && !scan_done(&r.scan)))
        return error_set(e, -EINVAL, E_JSON_SYNTAX, "byte %zu: %s", (size_t)(r.scan.at - text) + 1,
                         r.scan.wrong);
    if (!err)
        err = choose_shape(&r, e);
    return err ? err : read_shape(&r, e);
}

int line_check(const char *text, size_t bytes, struct Error *e) {
    size_t blank = 0, valid = text_find_invalid(text, bytes);
    const char *zero = memchr(text, 0, bytes);
    while (blank < bytes && strchr(" \t\r", text[blank]) && text[blank])
        blank++;
    if (blank == bytes)
        return 0;
    if (valid < bytes)
        return error_set(e, -EINVAL, E_UTF8,
                         "byte %zu: it is not UTF-8; convert the file, for example with iconv",
                         valid + 1);
    if (zero)
        return error_set(e, -EINVAL, E_ZERO_BYTE, "byte %zu: it is zero; remove it",
                         (size_t)(zero - text) + 1);
    return 1;
}

void line_converse(struct Line *line) {
    const struct JsonSlice *p = &line->prompt, *in = &line->input;
    const char *between = p->bytes && in->bytes ? "\n" : "";
    free(line->joined);
    line->joined = base_format("%s%s%s", p->text, between, in->bytes ? in->text : "");
    line->count = 0;
    if (line->system.bytes)
        *line_add_message(line) =
            (struct Message){ROLE_SYSTEM, line->system.text, line->system.bytes, false};
    *line_add_message(line) =
        (struct Message){ROLE_USER, line->joined, strlen(line->joined), false};
    *line_add_message(line) =
        (struct Message){ROLE_ASSISTANT, line->answer.text, line->answer.bytes, false};
}

void line_free(struct Line *line) {
    free(line->messages);
    free(line->joined);
    *line = (struct Line){0};
}
