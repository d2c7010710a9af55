// Renders a conversation as token ids, each of which counts or does not, by a form (form.h).
//
// The ids are those of apply_chat_template of transformers, which tokenizes the whole rendered
// text: the text between two control tokens is encoded in one piece, a role's name together with
// the message after it. A message cannot contain control tokens: text that looks like one is
// encoded as text.
//
// The answers count, and the token that ends each; nothing else does. A token that holds bytes of
// an answer and of the text around it counts.
//
// Used by example.c for training, conversation.c and prompts.c for answers. Next: writer.h.
#ifndef DATA_CHAT_TEMPLATE_H
#define DATA_CHAT_TEMPLATE_H
#include "data/chat/form.h"
#include "data/chat/writer.h"

struct Template;

// Opens the form `name` (--chat-template: a known name, or a file that ends in .json), or with NULL
// the form of the tokenizer's own template. `t` and `name` must outlive the template. Errors:
// -EINVAL for an unknown name or template, with the list of names, and for a tokenizer that lacks a
// control token, by name; those of form_file_open.
int template_open(struct Template **out, const struct Tokenizer *t, const char *name,
                  struct Error *e);
void template_close(struct Template *t); // NULL is allowed

const char *template_name(const struct Template *t);

// True if the id is a control token that opens or ends messages of the template.
bool template_has_token(const struct Template *t, int32_t id);

// True if earlier answers stand in a conversation without the thoughts before them (</think>), as
// in Qwen3's template.
bool template_drops_thoughts(const struct Template *t);

enum { TEMPLATE_STOPS = 2 };

// Writes the tokens that end an answer, at least one. Returns their number.
size_t template_stops(const struct Template *t, int32_t stops[TEMPLATE_STOPS]);

// Returns the form as Jinja text (form_jinja), for an exported model; free() it. NULL: the
// tokenizer's own template has this form already.
char *template_jinja(const struct Template *t);

// Appends a conversation; `ask`: also the text that opens an answer. Errors: -EINVAL, without the
// line, for a role, an order, a system message or thoughts that the form does not have.
int template_render(const struct Template *t, const struct Message *messages, size_t count,
                    bool ask, struct Masked *out, struct Error *e);

#endif
