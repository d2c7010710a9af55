// A parsed line of a JSONL file: a text, a prompt with its completion, a conversation, or a task
// with its answer.
//
// Read by line.c, with shape.c's table, for example.c; template.h renders its messages.
#ifndef DATA_CHAT_LINE_H
#define DATA_CHAT_LINE_H
#include "data/chat/map.h"
#include "data/json.h"

enum Role { ROLE_SYSTEM, ROLE_USER, ROLE_ASSISTANT, ROLE_TOOL, NROLE };
extern const char *const role_names[NROLE];

// A message. Its text lies in the line, or is the caller's.
struct Message {
    enum Role role;
    const char *text;
    size_t bytes;
    bool in_prompt; // it is not learned, whatever its role
};

struct Line {
    const struct Shape *shape;
    // The members of the shape: LINE_TEXT has an answer alone; LINE_TASK may lack input and system.
    struct JsonSlice prompt, input, answer, system;
    struct Message *messages; // LINE_MESSAGES; line_free() them
    size_t count, room;
    char *joined; // the text that line_converse() has joined
};

// Reads a line (UTF-8 without a zero byte), and changes its bytes, into `line`, which begins as {0}
// and may be reused. `map` NULL: members have their usual names. Errors: -EINVAL with what is
// wrong, without the line's number.
int line_read(struct Line *line, const struct DataMap *map, char *text, size_t bytes,
              struct Error *e);
void line_free(struct Line *line);

// Makes the messages of a LINE_TASK: its system message, if it has one; the prompt, with the input
// on the next lines, as LlamaFactory joins them; the answer.
void line_converse(struct Line *line);

// Checks the bytes of a line. Returns 1, or 0 for a blank line. Errors: -EINVAL for a zero byte,
// and for what is not UTF-8.
int line_check(const char *text, size_t bytes, struct Error *e);

// ---- for line.c and prompts.c ----

// Reads a value. True if it is [], {}, "" or "[]".
bool line_read_empty(struct Scan *s);

// Reads a list of messages into the line, {"role", "content"} or {"from", "value"} each. A content
// may be a list of parts of text. Errors: -EINVAL; the scan's, which the caller reports.
int line_read_messages(struct Line *line, struct Scan *s, struct Error *e);
struct Message *line_add_message(struct Line *line); // to be filled
// Puts a system message before the messages, of which there is one at least, unless the first is
// one already, or the text is empty.
void line_add_system(struct Line *line, const char *text, size_t bytes);

#endif
