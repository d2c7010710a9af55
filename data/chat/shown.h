// An example as a line of the log shows it.
#ifndef DATA_CHAT_SHOWN_H
#define DATA_CHAT_SHOWN_H
#include "data/text/tokenizer.h"

// The text of ids in quotes, its middle left out where it is long: line breaks as \n, and nothing
// that a terminal would obey. free() it.
char *shown_ids(const struct Tokenizer *t, const int32_t *ids, size_t count);

#endif
