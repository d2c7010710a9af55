// A conversation with a chat model: turns of a question and its answer, behind a system message.
//
// Each question is asked with all that was said before, as far as the model sees: where that is
// more, the oldest turns are left out whole, while the system message stays. They stay in the
// conversation, and in what is saved of it.
//
// Used by dialog.c, and for --chat by data/flags/texts.c. Next: template.h, which renders it.
#ifndef DATA_CHAT_CONVERSATION_H
#define DATA_CHAT_CONVERSATION_H
#include "data/text/tokenizer.h"

struct Conversation;

// The tokenizer and the name must outlive the conversation.
struct ConversationSpec {
    const struct Tokenizer *tokenizer;
    const char *template; // --chat-template; NULL: the tokenizer's own
    const char *system;   // --system, UTF-8; NULL: the template's own, if it has one
    size_t longest;       // tokens that the model sees, question and answer together
};

// Errors: those of template_open.
int conversation_open(struct Conversation **out, const struct ConversationSpec *spec,
                      struct Error *e);
void conversation_close(struct Conversation *c); // NULL is allowed

// Appends the tokens that end an answer.
void conversation_append_stops(const struct Conversation *c, struct Ids *stops);

// Adds a question, and appends to `prompt` the conversation up to where its answer begins.
// *left_out: how many of the oldest turns are not in it. They are left out, for good, where there
// is no room for `answer_tokens` otherwise: the fewest that free half of `longest`, so that the
// next questions find room. Without any turn, the answer has what room there is.
// conversation_answer must follow. Errors, which change nothing: -EINVAL for text that is not
// UTF-8, and for a question that alone leaves no room; those of template_render.
int conversation_ask(struct Conversation *c, const char *question, size_t answer_tokens,
                     struct Ids *prompt, size_t *left_out, struct Error *e);

// Adds the answer, which may be empty: its text without the token that ended it. cut: the model has
// not ended it. Bytes that are not UTF-8 become U+FFFD. Where the template has no thoughts in
// earlier answers (Qwen3), they are left out, as transformers does.
void conversation_answer(struct Conversation *c, const char *text, size_t bytes, bool cut);

// Begins anew: no turns, the same system message.
void conversation_reset(struct Conversation *c);

// Begins anew with this system message; "": the template's own. Errors, which change nothing:
// -EINVAL for text that is not UTF-8; those of template_render, which may take none.
int conversation_set_system(struct Conversation *c, const char *system, struct Error *e);

// Writes the turns as a line that --data reads, {"messages": [...]}, into a new file, which appears
// complete or not at all. *cut: how many are left out because their answer is cut, as a model would
// learn to end there. Errors: -EINVAL without an answer that is not cut; -EEXIST; -errno.
int conversation_save(const struct Conversation *c, const char *path, size_t *cut, struct Error *e);

#endif
