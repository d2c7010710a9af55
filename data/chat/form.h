// How a family of models writes a conversation down: a row of data instead of a Jinja program.
//
// A message becomes prefix, content, suffix; what a row cannot say so is a rule of its own. In the
// strings of a row {bos} and {eos} stand for the tokenizer's begin and end tokens, and whatever
// there is written as a control token of the tokenizer ("<|im_start|>") is that token. Known rows
// are in forms.c; form_file.c reads one from a file; template.h renders with it.
#ifndef DATA_CHAT_FORM_H
#define DATA_CHAT_FORM_H
#include "data/chat/line.h"

enum FormSystem {
    SYSTEM_ITSELF,  // a message like others
    SYSTEM_REFUSED, // there is none
    SYSTEM_FIRST,   // the first message; its text stands in front of the first user's
    SYSTEM_LAST,    // the first message; in front of the last message, which must be a user's
};

enum {
    FORM_ALTERNATES = 1,   // user, assistant, user, ... behind a system message
    FORM_TRIMS = 2,        // contents lose the white space around them
    FORM_TRIMS_ANSWER = 4, // those of answers do
    FORM_THINKS = 8,       // the last answer follows an empty block of thoughts (Qwen3)
};

enum { FORM_NEEDS = 4 };

struct Form {
    const char *name;
    const char *begin; // what a rendering opens with; NULL: nothing
    struct {
        const char *prefix, *suffix; // prefix NULL: the role is not known to it
    } role[NROLE];
    const char *first_system;           // the prefix of a system message that is the first; NULL:
                                        // that of the role
    const char *default_system;         // content of one where none is the first; NULL: none
    const char *tools_open, *tools_end; // around a row of tool messages; NULL: nothing
    enum FormSystem system;
    unsigned rules;
    const char *ask;               // opens an answer that is asked for
    const char *needs[FORM_NEEDS]; // control tokens that the tokenizer must have
    bool source;                   // a file's: as Jinja text it says itself, to be known again
};

// Find the form of this name, or the one with this Jinja text as its template; NULL: none.
const struct Form *form_named(const char *name);
const struct Form *form_of_template(const char *jinja);

// Returns the known form number i; NULL after the last.
const struct Form *form_at(size_t i);

// Returns all names, separated by commas. free() it.
char *form_names(void);

// Reads {"system": {"prefix", "suffix"}, "user", "assistant", and if wanted "tool", "begin",
// "default_system"} from a file; form_file_close() it. Errors: -errno of reading; -EINVAL with the
// file's name.
struct FormFile {
    struct Form form;
    char *text; // which the form's strings lie in
};
int form_file_open(struct FormFile *f, const char *path, struct Error *e);

// What the Jinja text of such a form opens with (jinja.h), before the form.
#define FORM_SOURCE "{#- form: "

// The same from n bytes of text, which are used up by that, and the caller's to keep.
int form_file_read(struct Form *f, const char *path, char *text, size_t n, struct Error *e);
void form_file_close(struct FormFile *f);

// True if --chat-template has the name of a file: it ends in .json.
bool form_is_file(const char *name);

// Checks a --chat-template before there is a tokenizer. Errors: -EINVAL for an unknown name, with
// the known ones; those of form_file_open.
int form_check(const char *name, struct Error *e);

// Returns -EINVAL, with `what` and the known names as the error.
int form_refuse(const char *what, struct Error *e);

#endif
