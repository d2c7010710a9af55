// A conversation with a person or a script: lines of standard input are questions and commands
// (command.h), and answers go to standard output while they are made.
//
// A terminal shows a prompt, and what goes wrong is told there, and forgotten. From a pipe each
// question must be answered, so a line that is refused ends the conversation.
//
// Called by train.c for --chat without a text. Next: conversation.h.
#ifndef DATA_CHAT_DIALOG_H
#define DATA_CHAT_DIALOG_H
#include "data/chat/conversation.h"
#include "data/text/printed.h"

#include <stdio.h>

struct Dialog {
    struct Conversation *conversation;
    const struct Tokenizer *tokenizer;
    size_t room; // tokens that are left for an answer, before older turns are
    FILE *in, *out;
    bool terminal;
    char *line; // of getline
    size_t line_bytes, left_out, printed;
    struct PrintedStream stream;
    char *answer; // as far as it is printed
};

// answer_tokens: of an answer, at most; older turns are left out for half of what the model sees at
// most. Errors: those of conversation_open.
int dialog_open(struct Dialog *d, const struct ConversationSpec *spec, size_t answer_tokens,
                struct Error *e);
void dialog_close(struct Dialog *d); // a zeroed one: does nothing

// Carries out commands until a line is a question, whose prompt it appends; appends nothing at the
// end of input. Errors: -errno of reading; from a pipe, what a line is refused for.
int dialog_ask(struct Dialog *d, struct Ids *prompt, struct Error *e);

// Prints what the answer's first `count` ids add to it. ends: they are all, and the answer becomes
// part of the conversation.
void dialog_print(struct Dialog *d, const int32_t *ids, size_t count, bool ends);

#endif
