// Text that came from outside, as it may stand in a line that a person reads.
//
// A name in a file, a flag's value or a library's message may hold what a terminal would obey, and
// a URL holds passwords. All lines of the program pass through here: errors (error_set), log lines
// and the last line in base.c, and what is printed while a run trains (data/log/progress.c).
// Nothing is below this file.
#ifndef KERNELS_SHOW_H
#define KERNELS_SHOW_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

// Writes `from` to the `size` bytes at `to`, cut at the end of a character: control characters (but
// \n and \t) and bytes that are not UTF-8 as \x1b; of a URL, user and password as ***@ and what is
// behind "?" or "#" as ***. What was shown before stays as it is. Returns its length.
size_t show_text(char *to, size_t size, const char *from);

// Prints words from `column`, where the line is, up to column 100, and ends the line; a line that
// is full goes on at `column`.
void show_words(FILE *out, const char *text, int column);

// The same with spaces for line breaks.
size_t show_line(char *to, size_t size, const char *from);

// The URLs in it masked, as a file that others may read has them, and all else as it is. At most
// three bytes for each of `from`.
size_t show_masked(char *to, size_t size, const char *from);

// Is this a URL that show_masked has taken something of?
bool show_is_masked(const char *url);

#endif
