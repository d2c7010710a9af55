// A conversation with a person or a script: lines of standard input are questions and commands
// (command.h), and answers go to standard output while they are made.
//
// A terminal shows a prompt, and what goes wrong is told there, and forgotten. From a pipe each
// question must be answered, so a line that is refused ends the conversation; the error has its
// number.
//
// Called by train.c for --chat without a text. Next: conversation.h.
#ifndef DATA_CHAT_DIALOG_H
#define DATA_CHAT_DIALOG_H
#include "data/chat/conversation.h"
#include "data/text/printed.h"

#include <stdio.h>

// Whether more of an answer follows; and if not: the model has ended it, the person has stopped it,
// or it has as many tokens as there may be.
enum AnswerEnd { ANSWER_GOES_ON, ANSWER_WHOLE, ANSWER_STOPPED, ANSWER_FULL };

struct Dialog {
    struct Conversation *conversation;
    const struct Tokenizer *tokenizer;
    size_t answer_tokens; // --sample-tokens
    size_t room;          // tokens that older turns are left out for
    FILE *in, *out;
    bool terminal;
    int interrupts; // an eventfd that Ctrl-C makes readable while a line is typed; -1: none
    char *line;     // of getline, like line_bytes
    size_t line_bytes, lines, turns_left_out, printed_bytes; // lines: that were read
    struct PrintedStream stream;
    char *answer; // printed_bytes, as far as it is printed
};

// An answer has at most answer_tokens. For as many of them as half of what the model sees, older
// turns are left out. Errors: those of conversation_open.
int dialog_open(struct Dialog *d, const struct ConversationSpec *spec, size_t answer_tokens,
                struct Error *e);
void dialog_close(struct Dialog *d); // a zeroed one: does nothing

// Carries out commands until a line is a question, whose prompt it appends; appends nothing at the
// end of input. Errors: -errno of reading; from a pipe, what a line is refused for.
int dialog_ask(struct Dialog *d, struct Ids *prompt, struct Error *e);

// Prints what the answer's first `count` ids add to it. If it ends, they are all, and it becomes
// part of the conversation; a line on standard error says what an answer that is full needs.
void dialog_print(struct Dialog *d, const int32_t *ids, size_t count, enum AnswerEnd end);

#endif
