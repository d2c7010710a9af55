// Text to token ids and back, by one of three tokenizers:
//
//   byte        256 ids, one per byte; no file
//   NAME.model  a SentencePiece model, trained here (data/text/prepare.c) or elsewhere
//   ids         for token shards whose tokenizer is not at hand: text is a list of numbers, such
//               as "464 3290"
//
// Used by data/text/prepare.c to make shards and by sampling to read prompts and print what the
// model says.
#ifndef DATA_TEXT_TOKENIZER_H
#define DATA_TEXT_TOKENIZER_H
#include "data/text/ids.h"
#include "kernels/base.h"

struct Tokenizer;

// What --tokenizer can say; without it, the one that fits the text (data/text/prepare.h).
enum TokenizerKind {
    TOKENIZER_BYTE,
    TOKENIZER_MODEL,
    TOKENIZER_TRAIN,
    TOKENIZER_IDS,
    TOKENIZER_FIT
};
struct TokenizerSpec {
    enum TokenizerKind kind;
    size_t pieces;    // TRAIN: of the vocabulary to be made
    const char *path; // MODEL: part of the text that was parsed
};

// Reads "byte", "train:N", "ids" or a path that ends in .model. Errors: -EINVAL with what would be
// right.
int tokenizer_parse(struct TokenizerSpec *spec, const char *text, struct Error *e);

void tokenizer_open_byte(struct Tokenizer **out);
void tokenizer_open_ids(struct Tokenizer **out, size_t vocab);
int tokenizer_open_model(struct Tokenizer **out, const char *path, struct Error *e);
void tokenizer_close(struct Tokenizer *t); // NULL is allowed

size_t tokenizer_vocab(const struct Tokenizer *t);
const char *tokenizer_describe(const struct Tokenizer *t); // one line for a log header
const char *tokenizer_path(const struct Tokenizer *t); // the .model file; NULL where there is none

// Appends the ids of a UTF-8 text. Errors: -EINVAL (ids: for text that is no list of ids below the
// vocabulary). May be called from several threads.
int tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                     struct Error *e);

// The same, but no part of the text becomes a control token, whatever it says: for what people
// wrote inside a conversation.
int tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                           struct Ids *ids, struct Error *e);

// The id of the control token that is written so ("<|im_end|>"); -1: there is none.
int32_t tokenizer_control(const struct Tokenizer *t, const char *text);

// The ids that begin and end a text, as the tokenizer's files say; -1: none does.
int32_t tokenizer_begin(const struct Tokenizer *t);
int32_t tokenizer_end(const struct Tokenizer *t);

// The chat template that came with the tokenizer, as Jinja text; NULL: none did.
const char *tokenizer_chat_template(const struct Tokenizer *t);

// The text of `count` ids, *bytes long (it may hold zero bytes, and a zero byte lies behind it);
// free() it. The text of two lists is the text of the joined list, so samples can be printed as
// they grow. A model's sample may break a letter between two ids: byte ids give invalid UTF-8 then.
// An id at or past tokenizer_vocab (a padded vocabulary has such) stands for nothing.
char *tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes);

#endif
