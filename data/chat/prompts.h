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

struct Prompts;

struct PromptsSpec {
    const char *path; // as those of --data: .jsonl, a list in a .json; packed, too
    const struct Tokenizer *tokenizer;
    const char *template; // --chat-template; NULL: the tokenizer's own, if messages need it
    const char *system;   // UTF-8, before messages that begin with none; NULL: none
    size_t longest;       // tokens that the model sees, prompt and answer together
};

// Reads all prompts. Errors: -errno of reading; -EINVAL, with the file and the line, for a line
// that is neither of the two, has "answer" or "finish_reason" already, would be asked otherwise
// than it says (tools, temperature), or leaves no room for an answer; -EINVAL for a file without a
// line; those of template_open and template_render.
int prompts_open(struct Prompts **out, const struct PromptsSpec *spec, struct Error *e);
void prompts_close(struct Prompts *p); // NULL is allowed

size_t prompts_count(const struct Prompts *p);                    // at least one
const struct Ids *prompts_ids(const struct Prompts *p, size_t i); // up to where the answer begins
// The tokens that end answer i; there may be none.
const struct Ids *prompts_stops(const struct Prompts *p, size_t i);

// ---- for answers.c ----

// The object of prompt i as the file has it, on one line and without its closing brace.
const char *prompts_object(const struct Prompts *p, size_t i);
const char *prompts_path(const struct Prompts *p);

#endif
