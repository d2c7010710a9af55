// Checksums beside files of the cache, so that a damaged file is noticed before it is used, and
// made or fetched again.
//
// A list is a small file: a title line, then one line per file with its XXH64, its bytes and its
// name. It finds accidents (a bad sector, a torn copy, a flipped bit), not forgers: a user who can
// write to the cache can write to the list. A check reads the file once, as fast as the disk; from
// the page cache, 0.22 s per GB on one core. Called by data/text/made.c, data/text/part.c and
// data/text/tokenizer.c.
#ifndef DATA_TEXT_SUMS_H
#define DATA_TEXT_SUMS_H
#include "kernels/base.h"

enum SumsState { SUMS_AGREE, SUMS_NONE, SUMS_DIFFER };

// The name of a list in the folder of its files.
#define SUMS_NAME "checksums"

// Writes the list of these files, which it reads. Errors: those of file_open and file_replace.
int sums_write(const char *list, const char *const paths[], size_t count, struct Error *e);

// Checks the files against the list of their checksums. If they differ, *e names the first that
// does, and how. Files that cannot be read differ.
enum SumsState sums_check(const char *list, const char *const paths[], size_t count,
                          struct Error *e);

// Checks a file that the user named against the list beside it, if there is one with a line for it.
// Errors: -EBADMSG, with the file's name.
int sums_check_beside(const char *path, struct Error *e);

#endif
