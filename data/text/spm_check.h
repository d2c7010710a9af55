// Checks that SentencePiece can safely read a model.
//
// The library trusts its files: a damaged normalisation table makes it read outside its memory, a
// score that is not a number breaks its search. So the file's structure is checked once before the
// library reads it. Called by data/text/spm.cc; fuzzed by tests/fuzz/fuzz_tokenizer_model.c.
#ifndef DATA_TEXT_SPM_CHECK_H
#define DATA_TEXT_SPM_CHECK_H
#include <stdbool.h>
#include <stddef.h>

struct Error;

#ifdef __cplusplus
extern "C" {
#endif

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
