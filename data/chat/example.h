// Examples of a JSONL file: what one line teaches, as token ids and which of them count.
//
// A line has one of the shapes of shape.c. A text is one document whose every token counts; of the
// others the answers alone count, with the tokens that end them. A task becomes a conversation
// where there is a chat template, else Alpaca's prompt. Made here, cut into sequences by data/text/
// (data/text/pack.h).
#ifndef DATA_CHAT_EXAMPLE_H
#define DATA_CHAT_EXAMPLE_H
#include "data/text/tokenizer.h"

struct Example {
    const int32_t *ids;
    const uint8_t *counts; // 1: the loss of predicting ids[i] counts; counts[0] is never asked for
    size_t count;
};

// How conversations become text.
struct ChatSpec {
    const char *name; // --chat-template; NULL: the tokenizer's own (tokenizer_chat_template)
    const char *map;  // --data-map; NULL: members are known by their names
    unsigned *told;   // bits of the kinds that were told, each with its first example in a line of
                      // the log; NULL: nothing is told
};

// What is called with each example, in the order of the file; other than 0 ends the reading, and is
// its result.
typedef int ExampleTaker(void *context, const struct Example *example, struct Error *e);

// Reads a JSONL file. `flag` ("--data", "--val-data") stands in the error lines. Errors: -errno of
// reading; -EINVAL, with the file's name and the line's number, for a line that has none of the
// shapes or not what the map names, an unknown role, a conversation without an answer, or what the
// chat template does not do; -EINVAL for a file without any example, and those of data_map_read and
// of template_open (data/chat/template.h), which the first conversation asks for; -EFBIG for a line
// past 64 MiB; the taker's.
int examples_read(const char *path, const char *flag, const struct Tokenizer *t,
                  const struct ChatSpec *chat, ExampleTaker *take, void *context, struct Error *e);

#endif
