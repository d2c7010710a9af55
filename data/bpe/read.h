// Reads tokenizer.json, and the files beside it, into a struct Bpe.
//
// Unsupported parts are refused by name: models other than BPE, normalizers and pre-tokenizers that
// normal.h and steps.h do not have, an expression that pattern.h does not read or PCRE2 does not
// compile, a post-processor that does more than add a token at the beginning or the end. Called by
// data/text/tokenizer.c; fuzzed by tests/fuzz/fuzz_bpe.c. Files: read.c the parts around the model,
// read_steps.c normalizers and pre-tokenizers, read_marks.c decoders and their marks, vocab.c
// pieces, merges and added tokens, config.c tokenizer_config.json.
#ifndef DATA_BPE_READ_H
#define DATA_BPE_READ_H
#include "data/bpe/bpe.h"

// Reads PATH, a tokenizer.json, and in its folder tokenizer_config.json and chat_template.jinja,
// if they exist. Errors, which begin with "FILE: ": those of file_read, -EINVAL.
int bpe_open(struct Bpe *b, const char *path, struct Error *e);

// Parses the n bytes of a tokenizer.json, which a zero byte follows. `path` names it in errors; no
// file is read.
int bpe_parse(struct Bpe *b, const char *text, size_t n, const char *path, struct Error *e);

// A tokenizer_config.json: the texts of its tokens, each NULL where it has none, and its chat
// template. The template of chat_template.jinja, if there is one, takes precedence.
struct TokenizerConfig {
    char *begin, *end, *chat_template;
    bool adds_begin, adds_no_begin; // add_bos_token: true, false
};

// Reads it from the folder of `path`. Errors: as above; files that do not exist are no error.
int tokenizer_config_read(struct TokenizerConfig *c, const char *path, struct Error *e);
void tokenizer_config_free(struct TokenizerConfig *c);

// ---- between the files ----

struct cJSON;

// Read the normalizers, the pre-tokenizers and the decoder. They come before the vocabulary, whose
// spelling depends on them.
int bpe_read_normalizer(struct Bpe *b, const struct cJSON *n, const char *path, struct Error *e);
int bpe_read_steps(struct Bpe *b, const struct cJSON *p, const char *path, struct Error *e);
int bpe_read_decoder(struct Bpe *b, const struct cJSON *d, const char *path, struct Error *e);
// After the vocabulary: sets b->shown, and adds a step STEP_RUNS if that changes no ids.
void bpe_use_marks(struct Bpe *b);

// Sets the error of a part whose type is not supported. Returns -EINVAL.
int bpe_refuse(const char *path, const char *part, const struct cJSON *object, const char *expected,
               struct Error *e);

// Reads "vocab" and "merges" of the model, and "added_tokens".
int bpe_read_vocab(struct Bpe *b, const struct cJSON *model, const struct cJSON *added,
                   const char *path, struct Error *e);

// Returns the id of the token whose text in tokenizer.json is `text`, or -1 if there is none. Added
// tokens come first.
int32_t bpe_token_to_id(const struct Bpe *b, const char *text);

#endif
