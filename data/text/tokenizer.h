// Text to token ids and back, by one of four tokenizers:
//
//   byte        256 ids, one per byte; no file
//   NAME.model  a SentencePiece model, trained here (data/text/prepare.c) or elsewhere
//   NAME.json   a tokenizer.json of Hugging Face's, BPE (data/bpe/bpe.h)
//   ids         for token shards whose tokenizer is not at hand: text is a list of numbers, such
//               as "464 3290"
//
// A folder stands for its tokenizer.json, as in transformers, or else its tokenizer.model.
//
// Used by data/text/prepare.c to make shards and by sampling to read prompts and print what the
// model says.
#ifndef DATA_TEXT_TOKENIZER_H
#define DATA_TEXT_TOKENIZER_H
#include "data/text/ids.h"
#include "kernels/base.h"

enum { MODEL_BYTES_MAX = 256 << 20 }; // of a tokenizer's file

struct Tokenizer;

// What --tokenizer can say; without it, the one that fits the text (data/text/prepare.h).
enum TokenizerKind {
    TOKENIZER_BYTE,
    TOKENIZER_MODEL,
    TOKENIZER_JSON,
    TOKENIZER_TRAIN,
    TOKENIZER_IDS,
    TOKENIZER_FIT
};
struct TokenizerSpec {
    enum TokenizerKind kind;
    size_t pieces;    // TRAIN: of the vocabulary to be made
    const char *path; // MODEL, JSON: part of the text that was parsed, a file or its folder
};

// Reads "byte", "train:N", "ids", a path that ends in .model or .json, or a folder. Errors: -EINVAL
// with what would be right.
int tokenizer_parse(struct TokenizerSpec *spec, const char *text, struct Error *e);

void tokenizer_open_byte(struct Tokenizer **out);
void tokenizer_open_ids(struct Tokenizer **out, size_t vocab);
int tokenizer_open_model(struct Tokenizer **out, const char *path, struct Error *e);
int tokenizer_open_json(struct Tokenizer **out, const char *path, struct Error *e);
// Opens the file that a spec of these two kinds names. Errors: -errno of reading, -EINVAL.
int tokenizer_open_spec(struct Tokenizer **out, const struct TokenizerSpec *spec, struct Error *e);
// The file that such a spec names. free() it.
char *tokenizer_file(const struct TokenizerSpec *spec);
void tokenizer_close(struct Tokenizer *t); // NULL is allowed

enum TokenizerKind tokenizer_kind(const struct Tokenizer *t); // BYTE, MODEL, JSON or IDS
size_t tokenizer_vocab(const struct Tokenizer *t);
const char *tokenizer_describe(const struct Tokenizer *t); // one line for a log header
const char *tokenizer_path(const struct Tokenizer *t);     // its file; NULL where there is none

// Appends the ids of a UTF-8 text, as the reference implementation gives them without special
// tokens around: a caller puts tokenizer_begin in front where a text begins. A control token of a
// tokenizer.json that is written out in it becomes that token. Errors: -EINVAL (ids: for text that
// is no list of ids below the vocabulary; JSON: not UTF-8). May be called from several threads.
int tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                     struct Error *e);

// The same, but no part of the text becomes a control token, whatever it says: for what people
// wrote inside a conversation.
int tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                           struct Ids *ids, struct Error *e);

// Whether the tokenizer puts a mark in front of a text's first part alone. Then the text after a
// control token is encoded by the function that follows, as part of a text that began before it.
bool tokenizer_has_first(const struct Tokenizer *t);
int tokenizer_encode_behind(const struct Tokenizer *t, const char *text, size_t bytes, bool plain,
                            struct Ids *ids, struct Error *e);

// What became, since this was asked last, of bytes that the vocabulary of a tokenizer.json has no
// piece for, as the reference implementation has it: "3 bytes ... are left out", or become its
// unk_token. free() it; NULL: there were none.
char *tokenizer_missing(const struct Tokenizer *t);

// The id of the control token that is written so ("<|im_end|>"); -1: there is none.
int32_t tokenizer_control(const struct Tokenizer *t, const char *text);

// What a token is written as, such as "<|im_end|>", also a control token of a .model, which
// decodes to nothing; NULL: there is no such id. free() it.
char *tokenizer_token_text(const struct Tokenizer *t, int32_t id);

// The ids that begin and end a text, as the tokenizer's files say; -1: none does. A text begins
// with what the reference puts there: the token of tokenizer.json's template, or bos_token where
// tokenizer_config.json says add_bos_token; a .model's <s>, unless add_bos_token is false. It ends
// with the template's token, or eos_token; </s>.
int32_t tokenizer_begin(const struct Tokenizer *t);
int32_t tokenizer_end(const struct Tokenizer *t);

// The chat template that came with the tokenizer, as Jinja text; NULL: none did.
const char *tokenizer_chat_template(const struct Tokenizer *t);

// The text of `count` ids, *bytes long (it may hold zero bytes, and a zero byte lies behind it);
// free() it. The text of two lists is the text of the joined list, so samples can be printed as
// they grow. A model's sample may break a letter between two ids: byte ids give invalid UTF-8 then.
// An id at or past tokenizer_vocab (a padded vocabulary has such) stands for nothing.
char *tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes);

// ---- for encode.h ----

// What a thread needs to encode a text in parts, and a part of valid UTF-8: `at` bytes of the text
// lie in front of it, `behind` follow it in memory.
struct TokenizerWork;
struct TokenizerWork *tokenizer_work_open(const struct Tokenizer *t);
void tokenizer_work_close(struct TokenizerWork *w); // NULL is allowed
struct TextPart {
    const char *text;
    size_t bytes, behind, at;
};
// Errors: those of tokenizer_encode; -EAGAIN, with nothing appended: the text cannot be cut behind
// this part.
int tokenizer_encode_part(const struct Tokenizer *t, struct TokenizerWork *w,
                          const struct TextPart *p, struct Ids *ids, struct Error *e);

// How many bytes a part may have, about `wanted`, so that the parts' ids are those of the text: if
// tokenizer_encode_part takes them.
size_t tokenizer_cut(const struct Tokenizer *t, const char *text, size_t bytes, size_t wanted);

#endif
