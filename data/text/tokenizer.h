// Converts text to token ids and back, by one of four tokenizers:
//
//   byte        256 ids, one per byte; no file
//   NAME.model  a SentencePiece model, trained here (data/text/prepare.c) or elsewhere
//   NAME.json   a tokenizer.json of Hugging Face's, BPE (data/bpe/bpe.h)
//   ids         for token shards without their tokenizer: text is a list of numbers, such as
//               "464 3290"
//
// A folder stands for its tokenizer.json, as in transformers, or else its tokenizer.model.
//
// Used by data/text/prepare.c to make shards, and by sampling to read prompts and print samples.
#ifndef DATA_TEXT_TOKENIZER_H
#define DATA_TEXT_TOKENIZER_H
#include "data/text/ids.h"
#include "kernels/base.h"

enum { MODEL_BYTES_MAX = 256 << 20 }; // of a tokenizer's file

struct Tokenizer;

// The kinds of --tokenizer. FIT: no flag; the one that fits the text (data/text/prepare.h).
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
    size_t pieces;    // TRAIN: of the vocabulary to train
    const char *path; // MODEL, JSON: a file or its folder; part of the text that was parsed
};

// Reads "byte", "train:N", "ids", a path that ends in .model or .json, or a folder. Errors: -EINVAL
// with what would be right.
int tokenizer_parse(struct TokenizerSpec *spec, const char *text, struct Error *e);

void tokenizer_open_byte(struct Tokenizer **out);
void tokenizer_open_ids(struct Tokenizer **out, size_t vocab);
int tokenizer_open_model(struct Tokenizer **out, const char *path, struct Error *e);
int tokenizer_open_json(struct Tokenizer **out, const char *path, struct Error *e);
// Opens the file that a spec of TOKENIZER_MODEL or TOKENIZER_JSON names. Errors: -errno of reading,
// -EINVAL.
int tokenizer_open_spec(struct Tokenizer **out, const struct TokenizerSpec *spec, struct Error *e);
// Returns that file's path. free() it.
char *tokenizer_file(const struct TokenizerSpec *spec);
void tokenizer_close(struct Tokenizer *t); // NULL is allowed

enum TokenizerKind tokenizer_kind(const struct Tokenizer *t); // BYTE, MODEL, JSON or IDS
size_t tokenizer_vocab(const struct Tokenizer *t);
const char *tokenizer_describe(const struct Tokenizer *t); // one line for a log header
const char *tokenizer_path(const struct Tokenizer *t);     // of its file; NULL: it has none

// Appends the ids of a UTF-8 text, those of the reference implementation without special tokens:
// the caller adds tokenizer_begin at the beginning of a text. The text of a control token of a
// tokenizer.json becomes that token. Errors: -EINVAL (ids: for text that is no list of ids below
// the vocabulary; JSON: not UTF-8). May be called from several threads.
int tokenizer_encode(const struct Tokenizer *t, const char *text, size_t bytes, struct Ids *ids,
                     struct Error *e);

// Appends ids as tokenizer_encode does, but no part of the text becomes a control token: for the
// contents of messages.
int tokenizer_encode_plain(const struct Tokenizer *t, const char *text, size_t bytes,
                           struct Ids *ids, struct Error *e);

// True if the tokenizer puts a mark at the front of a text alone. Then text after a control token
// is encoded by tokenizer_encode_after, as the continuation of a text.
bool tokenizer_marks_only_front(const struct Tokenizer *t);
int tokenizer_encode_after(const struct Tokenizer *t, const char *text, size_t bytes, bool plain,
                           struct Ids *ids, struct Error *e);

// Reports the bytes since the last call for which the vocabulary of a tokenizer.json has no piece:
// "3 bytes ... are left out", or become its unk_token, as in the reference implementation. free()
// it; NULL: there were none.
char *tokenizer_missing(const struct Tokenizer *t);

// Returns the id of the control token with this text ("<|im_end|>"); -1: there is none.
int32_t tokenizer_control(const struct Tokenizer *t, const char *text);

// Returns the text of a token, such as "<|im_end|>", also of a control token of a .model, which
// decodes to nothing; NULL: there is no such id. free() it.
char *tokenizer_token_text(const struct Tokenizer *t, int32_t id);

// Return the ids that begin and end a text, by the tokenizer's files; -1: none. As in the
// reference, a text begins with the token of tokenizer.json's template, or with bos_token if
// tokenizer_config.json has add_bos_token; for a .model with <s>, unless add_bos_token is false. It
// ends with the template's token, or eos_token; for a .model with </s>.
int32_t tokenizer_begin(const struct Tokenizer *t);
int32_t tokenizer_end(const struct Tokenizer *t);

// Returns the tokenizer's chat template, as Jinja text; NULL: it has none.
const char *tokenizer_chat_template(const struct Tokenizer *t);

// Returns the text of `count` ids, *bytes long (it may have zero bytes, and a zero byte follows
// it); free() it. The texts of two lists joined are the text of the joined list, so samples can be
// printed as they grow. A sample may break a character between two byte ids: that is invalid UTF-8.
// An id at or past tokenizer_vocab (from a padded vocabulary) has no text.
char *tokenizer_decode(const struct Tokenizer *t, const int32_t *ids, size_t count, size_t *bytes);

// ---- a whole text, by several threads (encode.c) ----

// Takes the ids of the next stretch. A result other than 0 ends the encoding, and is returned.
// `done`: bytes of the text until now.
typedef int IdsTaker(void *context, const struct Ids *ids, size_t done, struct Error *e);

// Encodes valid UTF-8 as one text, after tokenizer_begin, if there is one, with the same ids as one
// thread: the text is cut where its tokenizer allows it, and the ids of stretches are passed on in
// order. Uses at most `threads` threads, including the caller's; 0: as many as there are cores.
// Errors: those of tokenizer_encode, the taker's.
int tokenizer_encode_text(const struct Tokenizer *t, const char *text, size_t bytes, size_t threads,
                          IdsTaker *take, void *context, struct Error *e);

// One thread's buffers for encoding a text in parts, and a part of valid UTF-8: `at` bytes of the
// text precede it, `after` bytes follow it in memory.
struct BpeWork;
struct BpeWork *tokenizer_work_open(const struct Tokenizer *t); // bpe_work_close() it; NULL: none
struct TextPart {
    const char *text;
    size_t bytes, after, at;
};
// Appends the ids of a part of a text. Errors: those of tokenizer_encode; -EAGAIN, with nothing
// appended: the text cannot be cut after this part.
int tokenizer_encode_part(const struct Tokenizer *t, struct BpeWork *w, const struct TextPart *p,
                          struct Ids *ids, struct Error *e);

// Returns the bytes of a part, about `wanted`, such that the parts' ids are those of the whole
// text, unless tokenizer_encode_part fails with -EAGAIN.
size_t tokenizer_cut(const struct Tokenizer *t, const char *text, size_t bytes, size_t wanted);

#endif
