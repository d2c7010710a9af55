// Cleans HellaSwag's texts as lm-eval's harness does before it encodes them (its task `hellaswag`,
// version 1.0: lm_eval/tasks/hellaswag/utils.py).
#ifndef DATA_EVAL_CLEAN_H
#define DATA_EVAL_CLEAN_H

// Returns the text (valid UTF-8) without white space at its ends, with ". " for " [title]", without
// text in brackets on one line, and with one space for two. It ends in a zero byte. free() it.
char *clean_text(const char *text);

// Returns the text (valid UTF-8) as Python's str.capitalize has it, by the C library's letters: the
// first in title case, all others in lower case; only ASCII's change where the system lacks the
// locale C.UTF-8. A letter that Python turns into several, as the German sharp s at the front,
// becomes one or stays. free() it. NULL: a letter after the first is a capital sigma, whose lower
// case depends on the letters around it.
char *clean_capitalize(const char *text);

// Returns the context: clean_text of "LABEL: A B", with B capitalized. free() it. NULL: B cannot be
// (clean_capitalize).
char *clean_query(const char *label, const char *a, const char *b);

#endif
