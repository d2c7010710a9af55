// What one line of a JSONL file says: a text, a prompt with its completion, a conversation, or a
// task with its answer.
//
// Made of the line by line.c, with shape.c's table, for example.c; template.h renders its messages.
#ifndef DATA_CHAT_LINE_H
#define DATA_CHAT_LINE_H
#include "data/chat/map.h"

enum Role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, NROLE };
extern const char *const role_names[NROLE];

// Its text lies in the line, or is the caller's.
struct Message {
    enum Role role;
    const char *text;
    size_t bytes;
    bool given; // by the prompt: it is not learned, whoever says it
};

struct Line {
    const struct Shape *shape;
    // What the shape has: LINE_TEXT an answer alone; of LINE_TASK, input and system may be missing.
    struct JsonSlice prompt, input, answer, system;
    struct Message *messages; // LINE_MESSAGES; line_free() them
    size_t count, room;
    char *joined; // what line_converse() has joined
};

// Reads a line (UTF-8 without a zero byte), which is used up by that, into `line`, which begins as
// {0} and may be used again. `map` NULL: by the members' own names. Errors: -EINVAL with what is
// wrong, without the place.
int line_read(struct Line *line, const struct DataMap *map, char *text, size_t bytes,
              struct Error *e);
void line_free(struct Line *line);

// The messages of a LINE_TASK: its system message, if it has one; the prompt, with the input on the
// lines behind it; the answer. (LlamaFactory joins the two so.)
void line_converse(struct Line *line);

// ---- for line.c ----

// Reads a list of messages into the line, {"role", "content"} or {"from", "value"} each. A content
// may be a list of parts of text. Errors: -EINVAL; the scan's, which the caller tells.
int line_read_messages(struct Line *line, struct Scan *s, struct Error *e);
struct Message *line_add_message(struct Line *line);

// A name out of a line, for an error line: what cannot be printed is "?", and a long one is cut.
struct ShownName {
    char text[48];
};
struct ShownName line_shown(const struct JsonSlice *name);

#endif
