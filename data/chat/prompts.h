// Many prompts at once, from a file of JSONL (--prompts), all of which is checked before the first
// is answered.
//
//     {"prompt": "Once upon a time", ...}           is continued as it is
//     {"messages": [{"role": ..., "content": ...}, ...], ...}   is answered, by the chat template
//
// The last message is the user's. Both may stand in a member "body", as in OpenAI's batches. Other
// members mean nothing here, and are kept for the answers (answers.h). Called by
// data/flags/texts.c. Next: line.h, template.h.
#ifndef DATA_CHAT_PROMPTS_H
#define DATA_CHAT_PROMPTS_H
#include "data/text/tokenizer.h"

struct PromptsSpec {
    const char *path; // as those of --data: .jsonl, a list in a .json; packed, too
    const struct Tokenizer *tokenizer;
    const char *template; // --chat-template; NULL: the tokenizer's own, if messages need it
    const char *system;   // UTF-8, before messages that begin with none; NULL: none
    size_t longest;       // tokens that the model sees, prompt and answer together
};

struct Prompt {
    char *object;            // as the file has it, on one line and without its closing brace
    struct Ids ids;          // up to where the answer begins
    const struct Ids *stops; // the tokens that end the answer; there may be none
};

struct Prompts {
    struct PromptsSpec spec;
    struct Prompt *prompt;
    size_t count, room;        // count: at least one
    struct Template *template; // NULL: no conversation has needed it
    struct Ids stops[2];       // [false] of a text, [true] of a conversation
};

// Reads all prompts. Errors: -errno of reading; -EINVAL, with the file and the line, for a line
// that is neither of the two, has "answer" or "finish_reason" already, would be asked otherwise
// than it says (tools, temperature), or leaves no room for an answer; -EINVAL for a file without a
// line; those of template_open and template_render.
int prompts_open(struct Prompts **out, const struct PromptsSpec *spec, struct Error *e);
void prompts_close(struct Prompts *p); // NULL is allowed

#endif
