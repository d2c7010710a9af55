// From the lines of a file to examples: see example.h. Next: line.c, template.c.
#include "data/chat/example.h"
#include "data/chat/lines.h"
#include "data/chat/template.h"
#include "data/chat/writer.h"
#include "data/text/text.h"

#include <errno.h>
#include <string.h>

struct Examples {
    const struct Tokenizer *t;
    const struct ChatSpec *chat;
    struct Template *template; // opened by the first conversation
    struct Lines lines;
    struct Line line;
    struct Masked made;
    size_t count;
};

// A text, or a prompt and what completes it: as the tokenizer reads any text, between the tokens
// that begin and end one, where it has such and the text does not say them itself.
static int make_text(struct Examples *x, const struct Piece *prompt, const struct Piece *text,
                     struct Error *e) {
    int32_t begin = tokenizer_begin(x->t), end = tokenizer_end(x->t);
    struct Masked whole = {0};
    struct Writer w = {.t = x->t, .out = &whole, .raw = true};
    write_text(&w, prompt->text, prompt->bytes, false);
    write_text(&w, text->text, text->bytes, true);
    int err = write_end(&w, e);
    size_t n = whole.ids.count;
    if (!err && begin >= 0 && !(n && whole.ids.data[0] == begin))
        masked_append(&x->made, begin, !prompt->text);
    for (size_t i = 0; i < n && !err; i++)
        masked_append(&x->made, whole.ids.data[i], whole.counts[i]);
    if (!err && end >= 0 && !(n && whole.counts[n - 1] && whole.ids.data[n - 1] == end))
        masked_append(&x->made, end, true);
    write_free(&w);
    masked_free(&whole);
    return err;
}

static int make(struct Examples *x, struct Error *e) {
    const struct Line *line = &x->line;
    const struct Piece none = {0};
    if (line->kind == LINE_TEXT)
        return make_text(x, &none, &line->text, e);
    if (line->kind == LINE_PROMPT)
        return make_text(x, &line->prompt, &line->completion, e);
    int err = x->template ? 0 : template_open(&x->template, x->t, x->chat->name, e);
    return err ? err
               : template_render(x->template, line->messages, line->count, false, &x->made, e);
}

// Does anything count, behind the first token, which nothing predicts?
static bool teaches(const struct Masked *m) {
    return m->ids.count > 1 && memchr(m->counts + 1, 1, m->ids.count - 1);
}

// A line to an example, which stays in x->made; empty: it was blank.
static int read_line(struct Examples *x, char *text, size_t bytes, struct Error *e) {
    size_t blank = 0, valid = text_find_invalid(text, bytes);
    const char *zero = memchr(text, 0, bytes);
    masked_clear(&x->made);
    while (blank < bytes && strchr(" \t\r", text[blank]) && text[blank])
        blank++;
    if (blank == bytes)
        return 0;
    if (zero)
        return error_set(e, -EINVAL, "byte %zu: a zero byte", (size_t)(zero - text) + 1);
    if (valid < bytes)
        return error_set(e, -EINVAL, "byte %zu: it is no UTF-8", valid + 1);
    if (x->lines.number == 1 && bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3))
        return error_set(e, -EINVAL,
                         "a byte-order mark (EF BB BF) stands before it; expected UTF-8 without "
                         "one");
    int err = line_read(&x->line, text, bytes, e);
    if (!err)
        err = make(x, e);
    if (!err && !teaches(&x->made))
        err = error_set(e, -EINVAL, "nothing of it counts: the %s is empty or a single token",
                        x->line.kind == LINE_TEXT ? "text" : "answer");
    return err;
}

static int read_all(struct Examples *x, const char *flag, ExampleTaker *take, void *context,
                    struct Error *e) {
    char *text;
    size_t bytes;
    int err;
    while ((err = lines_next(&x->lines, &text, &bytes, e)) > 0) {
        struct Error why;
        err = read_line(x, text, bytes, &why);
        if (err)
            return error_set(e, err, "%s %s: line %zu: %s", flag, x->lines.path, x->lines.number,
                             why.text);
        struct Example example = {x->made.ids.data, x->made.counts, x->made.ids.count};
        if (!example.count)
            continue;
        x->count++;
        err = take(context, &example, e);
        if (err)
            return err;
    }
    if (!err && !x->count)
        err = error_set(e, -EINVAL, "%s %s: there is no example in it", flag, x->lines.path);
    return err;
}

int examples_read(const char *path, const char *flag, const struct Tokenizer *t,
                  const struct ChatSpec *chat, ExampleTaker *take, void *context, struct Error *e) {
    struct Examples x = {.t = t, .chat = chat};
    // A name that is wrong is told whatever the lines are.
    int err = chat->name ? template_open(&x.template, t, chat->name, e) : 0;
    if (!err)
        err = lines_open(&x.lines, path, flag, e);
    else
        x.lines.fd = -1;
    if (!err)
        err = read_all(&x, flag, take, context, e);
    lines_close(&x.lines);
    template_close(x.template);
    line_free(&x.line);
    masked_free(&x.made);
    return err;
}
