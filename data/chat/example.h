// The examples of a JSONL file: token ids, each of which counts for the loss or does not.
//
// A line has one of the shapes of shape.c. In a text every token counts; in the other shapes only
// the answers count, with the tokens that end them. A task becomes a conversation if there is a
// chat template, else Alpaca's prompt. data/text/pack.h cuts examples into sequences.
#ifndef DATA_CHAT_EXAMPLE_H
#define DATA_CHAT_EXAMPLE_H
#include "data/text/tokenizer.h"

struct Example {
    const int32_t *ids;
    const uint8_t *counts; // 1: the loss of predicting ids[i] counts; counts[0] is not used
    size_t count;
};

// The flags that decide how lines become text.
struct ChatSpec {
    const char *name; // --chat-template; NULL: the tokenizer's own (tokenizer_chat_template)
    const char *map;  // --data-map; NULL: members are known by their names
    unsigned *logged; // 1 << kind of the lines whose first example was logged; NULL: none is logged
};

// A callback for each example, in the order of the file. A result other than 0 ends the reading and
// is returned.
typedef int ExampleTaker(void *context, const struct Example *example, struct Error *e);

// Reads a JSONL file. `flag` ("--data", "--val-data") opens the error lines. Errors: -errno of
// reading; -EINVAL, with the file's name and the line's number, for a line that has none of the
// shapes or lacks a member that the map names, an unknown role, a conversation without an answer,
// or one that the chat template cannot render; -EINVAL for a file without any example; those of
// data_map_read, and of template_open (data/chat/template.h), which the first conversation needs;
// -EFBIG for a line past 64 MiB; the taker's.
int examples_read(const char *path, const char *flag, const struct Tokenizer *t,
                  const struct ChatSpec *chat, ExampleTaker *take, void *context, struct Error *e);

#endif
