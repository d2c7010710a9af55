// A line of a conversation: see command.h.
#include "data/chat/command.h"
#include "data/json.h"

#include <errno.h>
#include <string.h>

static const char SPACE[] = " \t\r\n";

// Says whether the line is this command; *rest: the text behind it.
static bool is_command(const char *line, const char *name, const char **rest) {
    size_t n = strlen(name);
    if (strncmp(line, name, n) || (line[n] && !strchr(SPACE, line[n])))
        return false;
    *rest = line + n + strspn(line + n, SPACE);
    return true;
}

static bool begins_with_word(const char *line) {
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
    if (is_command(line, "/system", &rest))
        return (struct ChatLine){CHAT_SYSTEM, rest};
    if (is_command(line, "/reset", &rest) && !*rest)
        return (struct ChatLine){CHAT_RESET, rest};
    if (is_command(line, "/save", &rest) && *rest)
        return (struct ChatLine){CHAT_SAVE, rest};
    return (struct ChatLine){begins_with_word(line) ? CHAT_UNKNOWN : CHAT_QUESTION, line};
}

int chat_line_refuse(const struct ChatLine *line, struct Error *e) {
    return error_set(e, -EINVAL, E_CHAT_COMMAND,
                     "%s: expected /system TEXT, /reset or /save FILE; //TEXT asks \"/TEXT\"; "
                     "Ctrl-D ends",
                     json_shown(line->rest).text);
}
