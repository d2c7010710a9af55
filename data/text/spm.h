// SentencePiece (Kudo and Richardson, EMNLP 2018) as five C functions.
//
// A tokenizer here maps a STREAM of bytes to ids and back: nothing is folded, and decoding is the
// concatenation of each id's bytes. Models of spm_train reproduce every UTF-8 text exactly,
// newlines, tabs and runs of spaces included: words are split before spaces, a newline is a piece
// of its own, and characters without a piece are spelled in bytes. Other models may fold letters by
// rules of their own, and may want a space at the front of a text ("add_dummy_prefix"): a text gets
// one, and decoding shows it.
//
// data/text/spm.cc is the only C++ of the program. Without the library, data/text/spm_none.c takes
// its place, and every call names the package to install. Called by data/text/tokenizer.c.
#ifndef DATA_TEXT_SPM_H
#define DATA_TEXT_SPM_H
#include "data/text/ids.h"

#include <stdbool.h>

struct Error;
struct Spm;

#ifdef __cplusplus
extern "C" {
#endif

// Trains a model of `pieces` pieces (256 of them bytes) on UTF-8 text. *model gets the bytes of the
// .model file; free() it. The same text and library give the same model. Reads at most 16 MB of the
// text, spread evenly: more would not change 8192 pieces noticeably. Errors: -EINVAL if the text
// has too little variety for so many pieces; -ENOTSUP without the library.
int spm_train(const char *text, size_t text_bytes, size_t pieces, char **model, size_t *model_bytes,
              struct Error *e);

// Opens the bytes of a .model file; `name` opens the error lines. Checks the structure first
// (spm_check_model), because the library does not. Errors: -EINVAL for a file that is damaged
// or not a model; -ENOTSUP without the library.
int spm_open(struct Spm **out, const char *model, size_t model_bytes, const char *name,
             struct Error *e);
void spm_close(struct Spm *s); // NULL is allowed

size_t spm_vocab(const struct Spm *s);

// Appends the ids of UTF-8 text to `ids`; `begins`: it is the beginning of a text, where the model
// may want a space. May be called from several threads. Errors: -EINVAL with the library's message.
int spm_encode(const struct Spm *s, const char *text, size_t text_bytes, bool begins,
               struct Ids *ids, struct Error *e);

// Return the model's ids for the beginning and the end of a text ("<s>", "</s>"), and of the
// control piece with this text; -1: none.
int32_t spm_begin(const struct Spm *s);
int32_t spm_end(const struct Spm *s);
int32_t spm_control(const struct Spm *s, const char *text);

// Returns the name of a piece in the model ("<s>"). Valid until spm_close.
const char *spm_name(const struct Spm *s, size_t id);

// Returns the *bytes bytes of an id (none for control pieces). Valid until spm_close.
const char *spm_piece(const struct Spm *s, size_t id, size_t *bytes);

// ---- spm_check.c, for spm.cc ----
// The library trusts its files: a damaged normalisation table makes it read outside its memory, a
// score that is not a number breaks its search. So the file's structure is checked once before the
// library reads it.

// Returns 0, or -EINVAL with an error that names the file and the fault.
int spm_check_model(const char *model, size_t model_bytes, const char *name, struct Error *e);

// True if the model puts a space at the front of a text. `model` has passed spm_check_model.
bool spm_adds_space(const char *model, size_t model_bytes);

// Turns a model's self-test samples into an unknown field: they are made for sentences with a space
// at the front, and fail on a stream without. `model` has passed spm_check_model.
void spm_drop_self_test(char *model, size_t model_bytes);

#ifdef __cplusplus
}
#endif
#endif
