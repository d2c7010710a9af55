// Makes text from outside safe to print in a line for a person.
//
// A name in a file, a flag's value or a library's message may contain control sequences for a
// terminal, and a URL may contain passwords. All lines of the program pass through here: errors
// (error_set), log lines and the last line in base.c, and training progress (data/log/progress.c).
// This file depends on no other.
#ifndef KERNELS_SHOW_H
#define KERNELS_SHOW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Writes `from` to the `size` bytes at `to`, cut at the end of a character: control characters
// (except \n and \t) and bytes that are not UTF-8 as \x1b; in a URL, user and password as ***@ and
// everything after "?" or "#" as ***. Showing a shown text changes nothing. Returns its length.
size_t show_text(char *to, size_t size, const char *from);

// Prints words from `column`, the line's current column, up to column 100, and ends the line; full
// lines continue at `column`.
void show_words(FILE *out, const char *text, int column);

// Prints a word of a command as a shell reads it.
void show_word(FILE *out, const char *word);

// The same as show_text, with spaces for line breaks.
size_t show_line(char *to, size_t size, const char *from);

// Masks only the URLs, for a file that others may read, and copies the rest. At most three bytes
// for each of `from`.
size_t show_masked(char *to, size_t size, const char *from);

// True if show_masked has masked a part of this URL.
bool show_is_masked(const char *url);

#endif
