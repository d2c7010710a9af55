// tokenizer.json, and what lies beside it, into a struct Bpe.
//
// What the program does not do is refused by its name: models that are no BPE, normalizers and
// pre-tokenizers that normal.h and steps.h do not have, an expression that pattern.h does not read
// or PCRE2 does not compile, a post-processor that does more than put a token in front or behind.
// Called by data/text/tokenizer.c; fuzzed by tests/fuzz/fuzz_bpe.c. Files: read.c the parts around
// the model, read_steps.c normalizers, pre-tokenizers, read_marks.c decoders and what they tell,
// vocab.c pieces, merges and added tokens, config.c tokenizer_config.json.
#ifndef DATA_BPE_READ_H
#define DATA_BPE_READ_H
#include "data/bpe/bpe.h"

// Reads PATH, a tokenizer.json, and in its folder tokenizer_config.json and chat_template.jinja,
// if they are there. Errors, with "FILE: " in front: those of file_read, -EINVAL.
int bpe_open(struct Bpe *b, const char *path, struct Error *e);

// Opens the n bytes of a tokenizer.json, which a zero byte follows; `path` names it in errors, and
// no file beside it is read.
int bpe_parse(struct Bpe *b, const char *text, size_t n, const char *path, struct Error *e);

// What a tokenizer_config.json says of any tokenizer: the texts of its tokens, each NULL where it
// has none, and its chat template (else that of chat_template.jinja, which goes before).
struct TokenizerConfig {
    char *begin, *end, *chat_template;
    bool adds_begin, adds_nothing; // add_bos_token: true, false
};

// Reads it from the folder of `path`. Errors: as above; files that do not exist are no error.
int tokenizer_config_read(struct TokenizerConfig *c, const char *path, struct Error *e);
void tokenizer_config_free(struct TokenizerConfig *c);

// ---- between the files ----

struct cJSON;

// Reads the normalizers, the pre-tokenizers and the decoder: before the vocabulary, which is
// written as they say.
int bpe_read_normalizer(struct Bpe *b, const struct cJSON *n, const char *path, struct Error *e);
int bpe_read_steps(struct Bpe *b, const struct cJSON *p, const char *path, struct Error *e);
int bpe_read_decoder(struct Bpe *b, const struct cJSON *d, const char *path, struct Error *e);
// Behind it: what its pieces decode to, and where words end that no pair reaches across.
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
