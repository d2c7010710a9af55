// The distance of a mistyped name from the names that exist, for "did you mean ...?".
//
// Used by the command line (data/flags/flags.c), the reader of DeepSpeed's files and the names of
// models (model/presets.c).
#ifndef KERNELS_NEAREST_H
#define KERNELS_NEAREST_H
#include <stddef.h>

// Counts the letters to change, add, drop or swap with their neighbour that make a into b
// (the restricted edit distance of Damerau, CACM 1964); SIZE_MAX for names of more than 64 letters.
size_t nearest_distance(const char *a, const char *b);

// Returns the distance from which on another name is no slip of this one.
size_t nearest_limit(const char *name);

#endif
