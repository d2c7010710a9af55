// What is examples and what is text, by a file's name and its first bytes.
//
// NAME.jsonl is examples, and NAME.json where it begins with a JSON object or a list of them. Under
// another name such a beginning is refused where one of its first members is one that examples
// have: its braces and roles would be learned as letters, and every target of them would count.
// Text that has to begin so has an empty line in front. Called by data/text/sources.c.
#ifndef DATA_TEXT_LOOKS_H
#define DATA_TEXT_LOOKS_H
#include "kernels/base.h"

// Does the name end so, whether it is packed (data/stream.h) or not?
bool looks_named_jsonl(const char *path);
bool looks_named_json(const char *path);

// Is the file examples? One that is named .json and cannot be read is: whoever reads it tells.
bool looks_examples(const char *path);

// Does a file's beginning have a member of examples? Of a .json file in a folder.
bool looks_member(const char *path);

// A format by a file's first bytes that is not read, such as "Parquet"; NULL: none that is known.
// *rows: it has a data set's rows, and is nothing that merely lies in a folder of texts.
const char *looks_format(const char *head, size_t bytes, bool *rows);

// The pandas function that reads a table of text such as NAME.csv, by its name; NULL: it is none.
const char *looks_table(const char *path);

// Of a text's first bytes. `flag` and `name` stand in the error line. Errors: -EINVAL.
int looks_check(const char *flag, const char *name, const char *head, size_t bytes,
                struct Error *e);

// The same of a file. What cannot be read is no fault here: whoever reads all of it tells.
int looks_check_file(const char *flag, const char *path, struct Error *e);

#endif
