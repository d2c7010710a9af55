// Python's str.capitalize, which lm-eval's protocol of HellaSwag calls.
#ifndef DATA_EVAL_CASE_H
#define DATA_EVAL_CASE_H
#include <stddef.h>

enum { CASE_GROWTH = 3 }; // a letter becomes at most so many times its bytes

// Writes valid UTF-8 of `n` bytes with its first letter in title case and all others in lower case;
// `out` holds CASE_GROWTH * n bytes and a zero byte. Returns the bytes written, or -1 for a capital
// sigma that is not the first letter: its lower case depends on the letters around it.
long case_capitalize(const char *text, size_t n, char *out);

#endif
