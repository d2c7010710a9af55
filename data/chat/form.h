// Forms: the chat templates of families of models, as rows of data instead of Jinja programs.
//
// A message becomes prefix, content, suffix; the rest of a template is a rule. In the strings of a
// form {bos} and {eos} stand for the tokenizer's begin and end tokens, and the text of a control
// token of the tokenizer ("<|im_start|>") is that token. Known forms are in forms.c; form_file.c
// reads one from a file; template.h renders with it.
#ifndef DATA_CHAT_FORM_H
#define DATA_CHAT_FORM_H
#include "data/chat/line.h"

enum FormSystem {
    SYSTEM_ITSELF,  // a system message is a message like others
    SYSTEM_REFUSED, // system messages are refused
    SYSTEM_FIRST,   // it must be the first message; its text is put before the first user's
    SYSTEM_LAST,    // it must be the first; it is put before the last message, which is a user's
};

enum {
    FORM_ALTERNATES = 1,   // user, assistant, user, ... must follow a system message
    FORM_TRIMS = 2,        // contents lose the white space around them
    FORM_TRIMS_ANSWER = 4, // answers lose the white space around them
    FORM_THINKS = 8,       // the last answer follows an empty block of thoughts (Qwen3)
};

enum { FORM_NEEDS = 3 };

struct Form {
    const char *name;
    const char *begin; // opens a rendering; NULL: nothing does
    struct {
        const char *prefix, *suffix; // prefix NULL: the form does not know the role
    } role[NROLE];
    const char *first_system;           // prefix of a system message that is the first one; NULL:
                                        // the role's
    const char *default_system;         // system message where the first is no such; NULL: none
    const char *tools_open, *tools_end; // around consecutive tool messages; NULL: nothing
    enum FormSystem system;
    unsigned rules;
    const char *ask; // opens the answer to generate
    // Control tokens that the tokenizer must have, besides {bos} and {eos}, which its texts name.
    const char *needs[FORM_NEEDS];
    bool from_file; // the Jinja text contains the file's JSON, to be recognised
};

// True if a system message's text opens a user's message.
static inline bool form_merges(const struct Form *f) {
    return f->system == SYSTEM_FIRST || f->system == SYSTEM_LAST;
}

// Returns the prefix of a system message that is the first one.
static inline const char *form_first_system(const struct Form *f) {
    return f->first_system ? f->first_system : f->role[ROLE_SYSTEM].prefix;
}

// Return the form of this name, or the one whose template is this Jinja text; NULL: none.
const struct Form *form_named(const char *name);
const struct Form *form_of_template(const char *jinja);

// Returns the known form number i; NULL after the last.
const struct Form *form_at(size_t i);

// Returns all names, separated by commas. free() it.
char *form_names(void);

// Reads {"system": {"prefix", "suffix"}, "user", "assistant", and optionally "tool", "begin",
// "default_system"} from a file; form_file_close() it. Errors: -errno of reading; -EINVAL with the
// file's name.
struct FormFile {
    struct Form form;
    char *text; // holds the form's strings
};
int form_file_open(struct FormFile *f, const char *path, struct Error *e);

// Returns Jinja text that renders as the form does in transformers' apply_chat_template, for
// exported models (tests/torch/chat_jinja.py compares); free() it. A conversation that the form
// refuses makes it call raise_exception. begin, end: the texts of {bos} and {eos}, written out so
// that no tokenizer_config.json can change them; NULL: the form has none.
char *form_jinja(const struct Form *f, const char *begin, const char *end);

// Opens the Jinja text of a form from a file; the form's JSON follows.
#define FORM_SOURCE "{#- form: "

// Reads a form from n bytes of text, which it changes. `path` becomes the form's name, and is in
// the error; it and the text must outlive the form. Errors: -EINVAL.
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
