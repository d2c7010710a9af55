// The shapes of JSONL data sets: the names of a line's members, and which of them make an example
// together.
//
// A shape is a row of a table: the members that it needs, and those that would make the line
// ambiguous. Used by line.c and map.c.
#ifndef DATA_CHAT_SHAPE_H
#define DATA_CHAT_SHAPE_H
#include "data/chat/scan.h"
#include "kernels/base.h"

enum Member {
    MEMBER_NONE, // the shape has no such member
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
extern const char *const member_names[NMEMBER]; // MEMBER_NONE: NULL

enum LineKind {
    LINE_TEXT,     // a document
    LINE_PROMPT,   // a prompt and its completion, as one text
    LINE_MESSAGES, // a conversation
    LINE_TASK,     // a user's task and an assistant's answer
};

struct Shape {
    const char *name; // for the log
    enum LineKind kind;
    unsigned needs;             // 1 << enum Member
    unsigned clashes;           // 1 << enum Member: these make the line ambiguous
    enum Member prompt, answer; // LINE_PROMPT, LINE_TASK: both; LINE_TEXT: the answer
    enum Member input;          // LINE_TASK: the text that the prompt is about
};

// TRL's prompt and completion as lists of messages, of which only the completion's are learned.
extern const struct Shape shape_prompt_of_messages;

// Returns the member of this name; MEMBER_NONE: no shape has it.
enum Member member_named(const struct JsonSlice *name);

// Returns the shape of a line with these members; NULL: none, or, with *ambiguous, several shapes,
// or members that clash with the one.
const struct Shape *shape_find(unsigned has, bool *ambiguous);

// When a member that no shape has is refused because it would change what is learned.
enum Refusal {
    REFUSE_NEVER,
    REFUSE_FILLED,     // unless it is null or empty
    REFUSE_FALSE,      // if it is false
    REFUSE_PREFERENCE, // unless it is null: it is one of several answers
};
enum Refusal member_refusal(const struct JsonSlice *name);

#endif
