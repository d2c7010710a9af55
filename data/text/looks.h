// Text that looks like examples: JSON whose file is not named .jsonl, so that its braces and roles
// would be learned as letters, and every target of them would count.
//
// What begins with a JSON object, or a list of them, is refused where one of its first members is
// one that examples have, or the file is named .json. Text that has to begin so has an empty line
// in front. Called by data/text/sources.c.
#ifndef DATA_TEXT_LOOKS_H
#define DATA_TEXT_LOOKS_H
#include "kernels/base.h"

// Of a text's first bytes. `flag` and `name` stand in the error line. Errors: -EINVAL.
int looks_check(const char *flag, const char *name, const char *head, size_t bytes,
                struct Error *e);

// The same of a file. What cannot be read is no fault here: whoever reads all of it tells.
int looks_check_file(const char *flag, const char *path, struct Error *e);

#endif
