// Reads the lines of a file as examples: see example.h. Next: line.c, template.c.
#include "data/chat/example.h"
#include "data/chat/lines.h"
#include "data/chat/template.h"
#include "data/text/text.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Examples {
    const struct Tokenizer *t;
    const struct ChatSpec *chat;
    struct DataMap map;
    const struct DataMap *used_map; // `map`; NULL: there is no --data-map
    struct Template *template;      // opened by the first conversation, or text
    bool template_tried;            // a text has tried to open it
    struct Lines lines;
    struct Line line;
    struct Masked encoded; // the line
    size_t count, texts;   // of examples, and of texts among them
    size_t endless;        // texts without an end token
    struct LinesPlace first_endless;
};

struct CountedText {
    const char *text;
    size_t bytes;
    bool counts;
};

// Returns the template that is open, else the tokenizer's own, which it opens; NULL: none is known.
static const struct Template *get_or_open_template(struct Examples *x) {
    struct Error ignored; // a template that is not known matters to conversations alone
    if (!x->template && !x->template_tried && tokenizer_chat_template(x->t))
        template_open(&x->template, x->t, NULL, &ignored);
    x->template_tried = true;
    return x->template;
}

// True if the text ends in a token that ends an answer, with only white space after it.
static bool ends_in_stop_token(const struct Examples *x, const struct Ids *ids,
                               const int32_t *stops, size_t count) {
    size_t bytes, last = ids->count;
    bool stop = false;
    for (; last && !stop; last -= !stop)
        for (size_t i = 0; i < count; i++)
            stop = stop || ids->data[last - 1] == stops[i];
    if (!stop)
        return false;
    char *behind = tokenizer_decode(x->t, ids->data + last, ids->count - last, &bytes);
    bool blank = strspn(behind, " \t\r\n") == bytes;
    free(behind);
    return blank;
}

// Counts a text of these ids, behind which make_text puts the tokenizer's end token, if it has one.
// Counts it as endless if it ends in no stop token, and no end token follows or, in a chat, another
// than its answers end in. `raw`: as in make_text.
static void count_text(struct Examples *x, const struct Ids *ids, bool raw) {
    int32_t end = tokenizer_end(x->t), stops[TEMPLATE_STOPS] = {end};
    const struct Template *t = raw ? get_or_open_template(x) : NULL;
    size_t count = t ? template_stops(t, stops) : 1;
    bool is_chat = false;
    for (size_t i = 0; i < ids->count && t; i++)
        is_chat = is_chat || template_has_token(t, ids->data[i]);
    x->texts++;
    if ((end >= 0 && (!is_chat || end == stops[0])) || ends_in_stop_token(x, ids, stops, count))
        return;
    if (!x->endless++)
        x->first_endless = lines_place(&x->lines);
}

static void warn_endless(const struct Examples *x, const char *flag) {
    bool none = tokenizer_end(x->t) < 0;
    if (x->endless && x->chat->logged)
        log_line(LOG_NORMAL,
                 "%s %s: %zu of %zu texts (%s is the first) %s: a model that learns from them "
                 "may not stop; %s",
                 flag, x->lines.path, x->endless, x->texts, x->first_endless.text,
                 none ? "have no end token, as the tokenizer has none"
                      : "are chats that do not end in the token that ends an answer",
                 none ? "give a --tokenizer that has one" : "end them in it");
}

// Encodes the parts as one text, between the tokenizer's begin and end tokens, which are added
// unless the text has them. `raw`: control tokens in the text are recognised.
static int make_text(struct Examples *x, const struct CountedText *part, size_t count, bool raw,
                     struct Error *e) {
    int32_t begin = tokenizer_begin(x->t), end = tokenizer_end(x->t);
    struct Masked whole = {0};
    struct Writer w = {.t = x->t, .out = &whole, .raw = raw};
    for (size_t i = 0; i < count; i++)
        write_text(&w, part[i].text, part[i].bytes, part[i].counts);
    int err = write_end(&w, e);
    size_t n = whole.ids.count;
    if (!err && begin >= 0 && !(n && whole.ids.data[0] == begin))
        masked_append(&x->encoded, begin, part[0].counts);
    for (size_t i = 0; i < n && !err; i++)
        masked_append(&x->encoded, whole.ids.data[i], whole.counts[i]);
    if (!err && end >= 0 && !(n && whole.counts[n - 1] && whole.ids.data[n - 1] == end))
        masked_append(&x->encoded, end, true);
    if (!err)
        count_text(x, &whole.ids, raw);
    write_free(&w);
    masked_free(&whole);
    return err;
}

// Makes the prompt of Stanford Alpaca's models, for a model that has no template. A system message
// replaces its first sentences (as in axolotl and LlamaFactory).
static int make_alpaca(struct Examples *x, struct Error *e) {
    static const char alone[] = "Below is an instruction that describes a task. Write a response "
                                "that appropriately completes the request.",
                      paired[] = "Below is an instruction that describes a task, paired with an "
                                 "input that provides further context. Write a response that "
                                 "appropriately completes the request.";
    const struct Line *line = &x->line;
    bool pair = line->input.bytes > 0;
    const char *opens = line->system.bytes ? line->system.text : pair ? paired : alone;
    char *prompt =
        base_format("%s\n\n### Instruction:\n%s%s%s\n\n### Response:\n", opens, line->prompt.text,
                    pair ? "\n\n### Input:\n" : "", pair ? line->input.text : "");
    struct CountedText part[] = {{prompt, strlen(prompt), false},
                                 {line->answer.text, line->answer.bytes, true}};
    int err = make_text(x, part, 2, false, e);
    free(prompt);
    return err;
}

static int encode_example(struct Examples *x, struct Error *e) {
    struct Line *line = &x->line;
    struct CountedText part[] = {{line->prompt.text, line->prompt.bytes, false},
                                 {line->answer.text, line->answer.bytes, true}};
    if (line->shape->kind == LINE_TEXT)
        return make_text(x, part + 1, 1, true, e);
    if (line->shape->kind == LINE_PROMPT)
        return make_text(x, part, 2, true, e);
    if (line->shape->kind == LINE_TASK && !x->chat->name && !tokenizer_chat_template(x->t))
        return make_alpaca(x, e);
    if (line->shape->kind == LINE_TASK)
        line_converse(line);
    int err = x->template ? 0 : template_open(&x->template, x->t, x->chat->name, e);
    return err ? err
               : template_render(x->template, line->messages, line->count, false, &x->encoded, e);
}

// True if any token counts after the first one, which is not predicted.
static bool has_counted_target(const struct Masked *m) {
    return m->ids.count > 1 && memchr(m->counts + 1, 1, m->ids.count - 1);
}

// Reads a line as an example into x->encoded; empty: the line was blank.
static int read_line(struct Examples *x, char *text, size_t bytes, struct Error *e) {
    x->encoded.ids.count = 0;
    int err = line_check(text, bytes, e);
    if (err <= 0)
        return err;
    err = line_read(&x->line, x->used_map, text, bytes, e);
    if (!err)
        err = encode_example(x, e);
    if (!err && !has_counted_target(&x->encoded))
        err = error_set(e, -EINVAL, E_EXAMPLE_EMPTY,
                        "nothing of it is learned: the %s is empty or a single token; drop it",
                        x->line.shape->kind == LINE_TEXT ? "text" : "answer");
    return err;
}

// A token has four letters on average; a line of the log has at most a thousand bytes.
enum { OPENING_IDS = 100, CLOSING_IDS = 40, OPENING_BYTES = 450, CLOSING_BYTES = 180 };

// Returns at most `most` bytes of the text of ids, or one more if \n, for a line break, is last. A
// character that is cut at their end is left out. Control characters and invalid UTF-8, of one cut
// between two ids, become "?". free() it.
static char *decode_printable(const struct Tokenizer *t, const int32_t *ids, size_t count,
                              size_t most) {
    size_t bytes, at = 0, n = 0;
    char *text = tokenizer_decode(t, ids, count, &bytes);
    for (size_t valid; (valid = at + text_find_invalid(text + at, bytes - at)) < bytes; at = valid)
        text[valid] = '?';
    char *line = base_alloc(most + 2);
    for (size_t i = 0; i < bytes && n < most; i++) {
        bool newline = text[i] == '\n';
        if (newline)
            line[n++] = '\\';
        line[n++] = newline ? 'n' : iscntrl((unsigned char)text[i]) ? '?' : text[i];
    }
    line[text_find_invalid(line, n)] = 0;
    free(text);
    return line;
}

// Returns the text of ids in quotes, without its middle if it is long. Line breaks become \n, and
// control characters "?". free() it.
static char *quote_ids(const struct Tokenizer *t, const int32_t *ids, size_t count) {
    bool whole = count <= OPENING_IDS + CLOSING_IDS;
    size_t opening = whole ? count : OPENING_IDS, closing = whole ? 0 : CLOSING_IDS;
    char *open =
        decode_printable(t, ids, opening, whole ? OPENING_BYTES + CLOSING_BYTES : OPENING_BYTES);
    char *end = decode_printable(t, ids + count - closing, closing, CLOSING_BYTES);
    char *line = base_format("\"%s%s%s\"", open, whole ? "" : " ... ", end);
    free(open);
    free(end);
    return line;
}

// Logs the first line of each kind, with its shape, template and ids.
static void log_first_line(const struct Examples *x, const char *flag) {
    const struct Shape *shape = x->line.shape;
    unsigned bit = 1u << shape->kind, *logged = x->chat->logged;
    size_t counted = 0;
    if (!logged || *logged & bit)
        return;
    *logged |= bit;
    for (size_t i = 1; i < x->encoded.ids.count; i++)
        counted += x->encoded.counts[i];
    bool plain = shape->kind == LINE_TEXT || shape->kind == LINE_PROMPT;
    char *shown = quote_ids(x->t, x->encoded.ids.data, x->encoded.ids.count);
    log_line(LOG_NORMAL, "%s %s: %s%s%s; %s, %zu tokens of which %zu count: %s", flag,
             x->lines.path, shape->name,
             plain         ? ""
             : x->template ? ", by the chat template "
                           : ", by Alpaca's prompt",
             !plain && x->template ? template_name(x->template) : "", lines_place(&x->lines).text,
             x->encoded.ids.count, counted, shown);
    free(shown);
}

static int read_examples(struct Examples *x, const char *flag, ExampleTaker *take, void *context,
                         struct Error *e) {
    char *text;
    size_t bytes;
    int err;
    while ((err = lines_next(&x->lines, &text, &bytes, e)) > 0) {
        struct Error why;
        err = read_line(x, text, bytes, &why);
        if (err)
            return lines_refuse(&x->lines, err, &why, e);
        struct Example example = {x->encoded.ids.data, x->encoded.counts, x->encoded.ids.count};
        if (!example.count)
            continue;
        x->count++;
        log_first_line(x, flag);
        err = take(context, &example, e);
        if (err)
            return err;
    }
    if (!err)
        warn_endless(x, flag);
    if (!err && !x->count)
        err = error_set(e, -EINVAL, E_EXAMPLES_NONE,
                        "%s %s: no line of it is an example; expected lines such as "
                        "{\"prompt\": \"...\", \"completion\": \"...\"}",
                        flag, x->lines.path);
    return err;
}

int examples_read(const char *path, const char *flag, const struct Tokenizer *t,
                  const struct ChatSpec *chat, ExampleTaker *take, void *context, struct Error *e) {
    struct Examples x = {.t = t, .chat = chat};
    char *map = chat->map ? base_format("%s", chat->map) : NULL;
    // A wrong --chat-template is refused even if no line needs it.
    int err = chat->name ? template_open(&x.template, t, chat->name, e) : 0;
    if (!err && map) {
        err = data_map_read(&x.map, map, e);
        x.used_map = &x.map;
    }
    if (!err)
        err = lines_open(&x.lines, path, flag, e);
    else
        x.lines.stream.fd = -1; // lines_close closes no file
    if (!err)
        err = read_examples(&x, flag, take, context, e);
    lines_close(&x.lines);
    template_close(x.template);
    line_free(&x.line);
    masked_free(&x.encoded);
    free(map);
    return err;
}
