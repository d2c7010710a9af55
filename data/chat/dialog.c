// Reads questions, and prints answers: see dialog.h.
#include "data/chat/dialog.h"
#include "data/json.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// ---- a line ----

static const char SPACE[] = " \t\r\n";

enum Rest { NOTHING, SOMETHING, ANYTHING };

static const struct Command {
    const char *name, *rest_name;
    enum ChatKind kind;
    enum Rest rest; // what may follow the name
    const char *does;
} commands[] = {
    {"/system", " TEXT", CHAT_SYSTEM, ANYTHING,
     "begins anew with this system message; without TEXT with the template's own"},
    {"/reset", "", CHAT_RESET, NOTHING, "begins anew"},
    {"/save", " FILE", CHAT_SAVE, SOMETHING, "writes the conversation into a new file"},
    {"/help", "", CHAT_HELP, NOTHING, "prints these lines"},
    {"/quit", "", CHAT_QUIT, NOTHING, "ends, as Ctrl-D does"},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

// True if the line is this command, with what it needs; *rest: the text behind its name.
static bool is_command(const char *line, const struct Command *c, const char **rest) {
    size_t n = strlen(c->name);
    if (strncmp(line, c->name, n) || (line[n] && !strchr(SPACE, line[n])))
        return false;
    *rest = line + n + strspn(line + n, SPACE);
    return c->rest == ANYTHING || (c->rest == SOMETHING) == (**rest != 0);
}

// True if only letters, of which there are some, follow the "/" up to white space or the end.
static bool has_word_after_slash(const char *line) {
    size_t n = strspn(line + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return n && (!line[1 + n] || strchr(SPACE, line[1 + n]));
}

struct ChatLine chat_line_read(char *line) {
    const char *rest;
    size_t n = strlen(line);
    while (n && strchr(SPACE, line[n - 1]))
        line[--n] = 0;
    line += strspn(line, SPACE);
    if (!*line)
        return (struct ChatLine){CHAT_EMPTY, line};
    if (*line != '/')
        return (struct ChatLine){CHAT_QUESTION, line};
    if (line[1] == '/')
        return (struct ChatLine){CHAT_QUESTION, line + 1};
    for (const struct Command *c = commands; c < commands + COMMANDS; c++)
        if (is_command(line, c, &rest))
            return (struct ChatLine){c->kind, rest};
    return (struct ChatLine){has_word_after_slash(line) ? CHAT_UNKNOWN : CHAT_QUESTION, line};
}

int chat_line_refuse(const struct ChatLine *line, struct Error *e) {
    return error_set(e, -EINVAL, E_CHAT_COMMAND,
                     "%s: expected /system TEXT, /reset, /save FILE, /help or /quit; //TEXT asks "
                     "\"/TEXT\"",
                     json_shown(line->rest).text);
}

static void print_help(FILE *out) {
    for (const struct Command *c = commands; c < commands + COMMANDS; c++) {
        int n = fprintf(out, "%s%s", c->name, c->rest_name);
        fprintf(out, "%*s%s\n", 14 - n, "", c->does);
    }
    fputs("//TEXT        asks \"/TEXT\"\n", out);
}

// ---- what is done with it ----

int dialog_open(struct Dialog *d, const struct ConversationSpec *spec, size_t answer_tokens,
                struct Error *e) {
    *d = (struct Dialog){.tokenizer = spec->tokenizer,
                         .answer_tokens = answer_tokens,
                         .room = size_min(answer_tokens, spec->longest / 2),
                         .in = stdin,
                         .out = stdout,
                         .terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO),
                         .interrupts = -1};
    return conversation_open(&d->conversation, spec, e);
}

void dialog_close(struct Dialog *d) {
    conversation_close(d->conversation);
    free(d->line);
    *d = (struct Dialog){0};
}

// Linux's terminals keep so many bytes of a line, and drop the rest without a word (n_tty.c).
enum { TERMINAL_LINE_BYTES = 4095 };

// Asks a person for a line, and waits for it. Ctrl-C, with which the terminal drops what was typed
// of it, asks anew; a second one ends. Returns false at the end.
static bool wait_for_line(struct Dialog *d) {
    struct pollfd ready[] = {{STDIN_FILENO, POLLIN, 0}, {d->interrupts, POLLIN, 0}};
    eventfd_t some;
    eventfd_read(d->interrupts, &some); // of Ctrl-C that came behind the end of an answer
    if (d->lines == 1)
        fputs("(Ctrl-C stops an answer, /help lists what else there is, Ctrl-D ends)\n", d->out);
    for (int times = 0; times < 2; times++) {
        fputs("> ", d->out);
        fflush(d->out);
        while (poll(ready, 2, -1) < 0 && errno == EINTR)
            ;
        if (!ready[1].revents)
            return true;
        eventfd_read(d->interrupts, &some);
        fputs(times ? "\n" : "\n(Ctrl-D ends, and so does Ctrl-C again)\n", d->out);
    }
    return false;
}

// Reads a line without its end, and with no zero byte in it. Returns 1, 0 at the end, -errno.
static int read_line(struct Dialog *d, struct Error *e) {
    d->lines++;
    if (d->terminal && !wait_for_line(d))
        return 0;
    fflush(d->out);
    if (ferror(d->out)) // nobody reads the answers any more
        return 0;
    errno = 0;
    ssize_t n = getline(&d->line, &d->line_bytes, d->in);
    if (n < 0 && ferror(d->in))
        return error_io(e, -errno, E_FILE_READ, "it cannot be read");
    if (n < 0 && d->terminal)
        fputc('\n', d->out); // behind the prompt
    if (n < 0)
        return 0;
    if (d->terminal && n > TERMINAL_LINE_BYTES)
        return error_set(e, -EINVAL, E_CHAT_TOO_LONG,
                         "the line has %d bytes, more than which a terminal drops; ask a long "
                         "question through a pipe",
                         TERMINAL_LINE_BYTES);
    if (strlen(d->line) != (size_t)n)
        return error_set(e, -EINVAL, E_UTF8, "the line has a zero byte; remove it");
    return 1;
}

static void print_notice_on_terminal(const struct Dialog *d, const char *what) {
    if (d->terminal)
        fprintf(d->out, "(%s)\n", what);
}

// Logs how many of the oldest turns no longer fit, when more of them are left out than before.
static void log_left_out_turns(struct Dialog *d, size_t left_out) {
    if (left_out > d->turns_left_out)
        log_line(LOG_NORMAL,
                 "the model no longer sees the oldest %zu of the questions and answers; raise "
                 "--seq-len to keep more",
                 left_out);
    d->turns_left_out = left_out;
}

static int ask_question(struct Dialog *d, const char *question, struct Ids *prompt,
                        struct Error *e) {
    size_t left_out;
    int err = conversation_ask(d->conversation, question, d->room, prompt, &left_out, e);
    if (!err)
        log_left_out_turns(d, left_out);
    d->stream = (struct PrintedStream){0};
    return err;
}

static int save_conversation(struct Dialog *d, const char *path, struct Error *e) {
    size_t cut;
    int err = conversation_save(d->conversation, path, &cut, e);
    if (!err && cut)
        log_line(LOG_NORMAL, "/save %s: questions whose answers were cut are left out: %zu", path,
                 cut);
    if (!err)
        print_notice_on_terminal(d, "saved");
    return err;
}

// Carries out a line, but for /quit.
static int carry_out_line(struct Dialog *d, const struct ChatLine *line, struct Ids *prompt,
                          struct Error *e) {
    int err = 0;
    switch (line->kind) {
    case CHAT_EMPTY:
    case CHAT_QUIT:
        return 0;
    case CHAT_HELP:
        print_help(d->out);
        return 0;
    case CHAT_QUESTION:
        return ask_question(d, line->rest, prompt, e);
    case CHAT_SAVE:
        return save_conversation(d, line->rest, e);
    case CHAT_UNKNOWN:
        return chat_line_refuse(line, e);
    case CHAT_SYSTEM:
        err = conversation_set_system(d->conversation, line->rest, e);
        break;
    case CHAT_RESET:
        conversation_reset(d->conversation);
    }
    if (!err)
        print_notice_on_terminal(d, "a new conversation");
    d->turns_left_out = err ? d->turns_left_out : 0;
    return err;
}

int dialog_ask(struct Dialog *d, struct Ids *prompt, struct Error *e) {
    size_t before = prompt->count;
    while (prompt->count == before) {
        int got = read_line(d, e), err = got < 0 ? got : 0;
        if (!got)
            return 0;
        struct ChatLine line = {CHAT_EMPTY, ""};
        if (!err)
            line = chat_line_read(d->line);
        if (line.kind == CHAT_QUIT)
            return 0;
        err = err ? err : carry_out_line(d, &line, prompt, e);
        if (err && (!d->terminal || ferror(d->in))) {
            struct Error why = *e;
            return error_set(e, err, why.id, "standard input: line %zu: %s", d->lines, why.text);
        }
        if (err) {
            fprintf(d->out, "%s\n", e->text);
            e->text[0] = 0; // it is told, and the conversation goes on
        }
    }
    return 0;
}

static void log_cut_answer(const struct Dialog *d, size_t count) {
    if (count == d->answer_tokens)
        log_line(LOG_NORMAL, "the answer is cut at --sample-tokens %zu; raise it", count);
    else
        log_line(LOG_NORMAL, "the answer is cut where --seq-len ends; raise it, or ask for less");
}

void dialog_print(struct Dialog *d, const int32_t *ids, size_t count, enum AnswerEnd end) {
    bool ends = end != ANSWER_GOES_ON;
    size_t bytes;
    char *more = printed_more(&d->stream, d->tokenizer, ids, count, ends, &bytes);
    fwrite(more, 1, bytes, d->out);
    free(more);
    if (!ends) {
        fflush(d->out);
        return;
    }
    fputc('\n', d->out);
    fflush(d->out);
    if (end == ANSWER_FULL)
        log_cut_answer(d, count);
    char *answer = printed_text(d->tokenizer, ids, count, &bytes);
    conversation_answer(d->conversation, answer, bytes, end != ANSWER_WHOLE);
    free(answer);
}
