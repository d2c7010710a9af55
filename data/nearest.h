// How near a mistyped name is to one that there is.
//
// Used by the command line (data/flags/flags.c) and the reader of DeepSpeed's files.
#ifndef DATA_NEAREST_H
#define DATA_NEAREST_H
#include <stddef.h>

// Counts the letters to change, add, drop or swap with their neighbour that make a into b
// (the restricted edit distance of Damerau, CACM 1964); SIZE_MAX for names of more than 64 letters.
size_t nearest_distance(const char *a, const char *b);

// From this distance on it is another word, not a slip.
size_t nearest_limit(const char *name);

#endif
