// What one line of a JSONL file says: a text, a prompt with its completion, or a conversation.
//
// Made of the line by line.c, for example.c; template.h renders its messages.
#ifndef DATA_CHAT_LINE_H
#define DATA_CHAT_LINE_H
#include "data/chat/scan.h"
#include "kernels/base.h"

enum LineKind { LINE_TEXT, LINE_PROMPT, LINE_MESSAGES };
enum Role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, NROLE };
extern const char *const role_names[NROLE];

// Its text lies in the line, or is the caller's.
struct Message {
    enum Role role;
    const char *text;
    size_t bytes;
};

struct Line {
    enum LineKind kind;
    struct Piece text;               // LINE_TEXT
    struct Piece prompt, completion; // LINE_PROMPT
    struct Message *messages;        // LINE_MESSAGES; line_free() them
    size_t count, room;
};

// Reads a line (UTF-8 without a zero byte), which is used up by that, into `line`, which begins as
// {0} and may be used again. Errors: -EINVAL with what is wrong, without the place.
int line_read(struct Line *line, char *text, size_t bytes, struct Error *e);
void line_free(struct Line *line);

#endif
