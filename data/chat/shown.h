// Formats an example for a line of the log.
#ifndef DATA_CHAT_SHOWN_H
#define DATA_CHAT_SHOWN_H
#include "data/text/tokenizer.h"

// Returns the text of ids in quotes, without its middle if it is long. Line breaks become \n, and
// control characters "?". free() it.
char *shown_ids(const struct Tokenizer *t, const int32_t *ids, size_t count);

#endif
