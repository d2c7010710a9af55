// Capitals as Python's str.capitalize makes them, which lm-eval's protocol of HellaSwag calls.
#ifndef DATA_EVAL_CASE_H
#define DATA_EVAL_CASE_H
#include <stddef.h>

enum { CASE_GROWTH = 3 }; // a letter's text grows to so many times its bytes, at most

// Writes the valid UTF-8 of `n` bytes with its first letter in title case and all others small;
// `out` has room for CASE_GROWTH * n bytes and a zero byte. Returns the bytes written, or -1 where
// a capital sigma is to become small, whose form hangs on the letters around it.
long case_capitalize(const char *text, size_t n, char *out);

#endif
