// A line of a conversation: see command.h.
#include "data/chat/command.h"
#include "data/json.h"

#include <errno.h>
#include <string.h>

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

void chat_line_help(FILE *out) {
    for (const struct Command *c = commands; c < commands + COMMANDS; c++) {
        int n = fprintf(out, "%s%s", c->name, c->rest_name);
        fprintf(out, "%*s%s\n", 14 - n, "", c->does);
    }
    fputs("//TEXT        asks \"/TEXT\"\n", out);
}
