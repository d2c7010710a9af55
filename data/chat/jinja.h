// A form as the Jinja text that renders the same in transformers' apply_chat_template, for models
// that go out with a template of ours. What a form refuses, the text refuses by raise_exception.
// tests/torch/chat_jinja.py compares. Called by template.c.
#ifndef DATA_CHAT_JINJA_H
#define DATA_CHAT_JINJA_H
#include "data/chat/form.h"

// begin, end: what {bos} and {eos} are, as texts, so that nobody's tokenizer_config.json says
// otherwise; NULL: the form has none of it. free() it.
char *form_jinja(const struct Form *f, const char *begin, const char *end);

#endif
