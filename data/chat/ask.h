// A question to a chat model: the prompt of a sample, and the tokens that end the answer.
//
// Called by data/flags/texts.c for --chat; template.h renders it.
#ifndef DATA_CHAT_ASK_H
#define DATA_CHAT_ASK_H
#include "data/text/tokenizer.h"

struct ChatAsk {
    const char *template; // --chat-template; NULL: the tokenizer's own
    const char *system;   // NULL: the template's own, if it has one
    const char *question;
};

// Appends to `prompt` the conversation up to where the answer begins, and to `stops` the tokens
// that end it. Errors: those of template_open and template_render; -EINVAL for text that is not
// UTF-8.
int chat_ask(const struct Tokenizer *t, const struct ChatAsk *ask, struct Ids *prompt,
             struct Ids *stops, struct Error *e);

#endif
