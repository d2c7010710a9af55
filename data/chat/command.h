// A line that a person types in a conversation: a question, or a command.
//
//     /system TEXT   begin anew with this system message; without TEXT the template's own
//     /reset         begin anew
//     /save FILE     write the conversation into a new file
//     /help          print these lines
//     /quit          end
//     //TEXT         the question "/TEXT"
//
// Another line that begins with "/" and a word of letters alone is a mistyped command, and not
// asked; any other ("/etc/hosts has no ...") is a question. conversation.h carries them out.
#ifndef DATA_CHAT_COMMAND_H
#define DATA_CHAT_COMMAND_H
#include "kernels/base.h"

enum ChatKind {
    CHAT_EMPTY,
    CHAT_QUESTION,
    CHAT_SYSTEM,
    CHAT_RESET,
    CHAT_SAVE,
    CHAT_HELP,
    CHAT_QUIT,
    CHAT_UNKNOWN
};

struct ChatLine {
    enum ChatKind kind;
    const char *rest; // the question, or what follows the command; UNKNOWN: the whole line
};

// Reads a line, from which it cuts the white space at its end. The result points into it.
struct ChatLine chat_line_read(char *line);

// Refuses a line that is UNKNOWN, with the commands that there are. Returns -EINVAL.
int chat_line_refuse(const struct ChatLine *line, struct Error *e);

// Prints a line for each command.
void chat_line_help(FILE *out);

#endif
