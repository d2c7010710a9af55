// A conversation as token ids, each of which counts or does not: a form (form.h) over a tokenizer.
//
// Ids are those that apply_chat_template of transformers gives, as it tokenizes the whole rendered
// text: what stands between two control tokens is encoded as one piece, a role's name together with
// the message behind it. A control token is placed as its id and never read out of a message, whose
// text is text whatever it says.
//
// The answers count, and the token that ends each; nothing else does. Of a token that holds bytes
// of an answer and of what stands around it, the answer's bytes decide: it counts.
//
// Used by example.c for training and by data/flags/ for --chat. Next: writer.h.
#ifndef DATA_CHAT_TEMPLATE_H
#define DATA_CHAT_TEMPLATE_H
#include "data/chat/form.h"
#include "data/chat/masked.h"
#include "data/text/tokenizer.h"

struct Template;

// Opens the form `name` (--chat-template: a known one's, or a file that ends in .json), or with
// NULL the one that the tokenizer's own template is. Both must outlive the template. Errors:
// -EINVAL for an unknown name or template, with the list of names, and for a tokenizer that lacks a
// control token, by name; those of form_file_open.
int template_open(struct Template **out, const struct Tokenizer *t, const char *name,
                  struct Error *e);
void template_close(struct Template *t); // NULL is allowed

const char *template_name(const struct Template *t);

// Whether the id is a control token that messages of the template begin or end with.
bool template_has(const struct Template *t, int32_t id);

enum { TEMPLATE_STOPS = 2 };

// The tokens that end an answer: at least one. Returns how many.
size_t template_stops(const struct Template *t, int32_t stops[TEMPLATE_STOPS]);

// The same as Jinja text (jinja.h), for a model that goes out; free() it. NULL: it is that of the
// tokenizer's own template, which says it as well.
char *template_jinja(const struct Template *t);

// Appends a conversation; `ask`: with what opens an answer behind it. Errors: -EINVAL, without the
// place, for what the form does not know or do: a role, an order, a system message, thoughts.
int template_render(const struct Template *t, const struct Message *messages, size_t count,
                    bool ask, struct Masked *out, struct Error *e);

#endif
