// What lm-eval's harness makes of HellaSwag's texts before it encodes them (its task `hellaswag`,
// version 1.0: lm_eval/tasks/hellaswag/utils.py).
#ifndef DATA_EVAL_CLEAN_H
#define DATA_EVAL_CLEAN_H
#include <stddef.h>

// The text without white space at its ends, with ". " for " [title]", without what stands in
// brackets on one line, and with one space for two. Valid UTF-8, a zero byte at its end. free() it.
char *clean_text(const char *text);

// The context: clean_text of "LABEL: A B", with B capitalized. free() it. NULL where
// case_capitalize cannot.
char *clean_query(const char *label, const char *a, const char *b);

// Counts the bytes of the text before the white space at its end.
size_t clean_length(const char *text);

#endif
