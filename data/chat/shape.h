// What the members of a line of JSONL are called, and which of them together make an example: the
// shapes that data sets come in.
//
// A shape is a row of data: the members that it needs, those that it may have, and those that would
// make the line two things at once. Used by line.c and map.c.
#ifndef DATA_CHAT_SHAPE_H
#define DATA_CHAT_SHAPE_H
#include "data/chat/scan.h"
#include "kernels/base.h"

enum Member {
    MEMBER_NONE, // a shape has no such member
    MEMBER_TEXT,
    MEMBER_PROMPT,
    MEMBER_COMPLETION,
    MEMBER_MESSAGES,
    MEMBER_CONVERSATIONS,
    MEMBER_INSTRUCTION,
    MEMBER_INPUT,
    MEMBER_OUTPUT,
    MEMBER_CONTEXT,
    MEMBER_QUESTION,
    MEMBER_ANSWER,
    MEMBER_RESPONSE,
    MEMBER_SYSTEM,
    NMEMBER
};
extern const char *const member_names[NMEMBER]; // that of MEMBER_NONE: NULL

enum LineKind {
    LINE_TEXT,     // a document
    LINE_PROMPT,   // a prompt and what completes it, as one text
    LINE_MESSAGES, // a conversation
    LINE_TASK,     // what a user asks and an assistant answers
};

struct Shape {
    const char *name; // for the log
    enum LineKind kind;
    unsigned needs;             // 1 << enum Member
    unsigned clashes;           // with these beside them nobody knows
    enum Member prompt, answer; // LINE_PROMPT, LINE_TASK: which is which; LINE_TEXT: answer
    enum Member input;          // LINE_TASK: what the prompt is about
};

// TRL's prompt and completion that are lists of messages, of which the completion's are learned.
extern const struct Shape shape_prompt_of_messages;

// The member of this name; MEMBER_NONE: it is none that a shape has.
enum Member member_named(const struct JsonSlice *name);

// The shape that a line with these members has; NULL: none, or with *two more than one.
const struct Shape *shape_find(unsigned has, bool *two);

// Members that must not be passed over, as they change what is to be learned.
enum Refusal {
    REFUSE_NEVER,
    REFUSE_FILLED,     // unless it is null, or empty
    REFUSE_FALSE,      // where it is false
    REFUSE_PREFERENCE, // unless it is null: an answer among others
};
enum Refusal member_refused(const struct JsonSlice *name);

#endif
