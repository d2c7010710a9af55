// Writes a form as Jinja text that renders the same in transformers' apply_chat_template, for
// exported models. A conversation that the form refuses makes the text call raise_exception.
// tests/torch/chat_jinja.py compares. Called by template.c.
#ifndef DATA_CHAT_JINJA_H
#define DATA_CHAT_JINJA_H
#include "data/chat/form.h"

// Returns the Jinja text; free() it. begin, end: the texts of {bos} and {eos}, written out so that
// no tokenizer_config.json can change them; NULL: the form has none.
char *form_jinja(const struct Form *f, const char *begin, const char *end);

#endif
