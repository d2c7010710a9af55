// A conversation with a person or a script: lines of standard input are questions and commands, and
// answers go to standard output while they are made.
//
//     /system TEXT   begin anew with this system message; without TEXT the template's own
//     /reset         begin anew
//     /save FILE     write the conversation into a new file
//     /help          print these lines
//     /quit          end
//     //TEXT         the question "/TEXT"
//
// Another line that begins with "/" and a word of letters alone is a mistyped command, and not
// asked; any other ("/etc/hosts has no ...") is a question.
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
    size_t room;          // tokens of an answer for which older turns are left out
    FILE *in, *out;
    bool terminal;
    int interrupts; // non-blocking eventfd, readable after Ctrl-C while a line is typed; -1: none
    char *line;     // of getline, like line_bytes
    size_t line_bytes, lines, turns_left_out; // lines: that were read
    struct PrintedStream stream;
};

// An answer has at most answer_tokens. Older turns are left out to make room for so many, or for
// half of what the model sees if that is fewer. Errors: those of conversation_open.
int dialog_open(struct Dialog *d, const struct ConversationSpec *spec, size_t answer_tokens,
                struct Error *e);
void dialog_close(struct Dialog *d); // a zeroed one: does nothing

// Carries out commands until a line is a question, whose prompt it appends; appends nothing at the
// end of input. Errors: -errno of reading; from a pipe, what a line is refused for.
int dialog_ask(struct Dialog *d, struct Ids *prompt, struct Error *e);

// Prints what of the answer is not printed yet; ids: its `count` ids so far. If it ends, they are
// all, and it becomes part of the conversation; standard error says what a full answer needs.
void dialog_print(struct Dialog *d, const int32_t *ids, size_t count, enum AnswerEnd end);

// ---- a line, for tests ----

enum ChatKind {
    CHAT_EMPTY,
    CHAT_QUESTION,
    CHAT_SYSTEM,
    CHAT_RESET,
    CHAT_SAVE,
    CHAT_HELP,
    CHAT_QUIT,
    CHAT_UNKNOWN
};

struct ChatLine {
    enum ChatKind kind;
    const char *rest; // the question, or what follows the command; UNKNOWN: the whole line
};

// Reads a line, from which it cuts the white space at its end. The result points into it.
struct ChatLine chat_line_read(char *line);

// Refuses a line that is UNKNOWN, with the commands that there are. Returns -EINVAL.
int chat_line_refuse(const struct ChatLine *line, struct Error *e);

#endif
