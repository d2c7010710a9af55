// Is this a SentencePiece model that the library can be trusted with?
//
// The library takes its own files at their word: a damaged normalisation table makes it read
// outside its memory, a score that is not a number upsets its search. So the file's structure is
// walked once before the library sees it. Called by data/text/spm.cc; fuzzed by
// tests/fuzz/fuzz_tokenizer_model.c.
#ifndef DATA_TEXT_SPM_CHECK_H
#define DATA_TEXT_SPM_CHECK_H
#include <stdbool.h>
#include <stddef.h>

struct Error;

#ifdef __cplusplus
extern "C" {
#endif

// 0, or -EINVAL with a line that names the file and what is wrong with it.
int spm_check_model(const char *model, size_t model_bytes, const char *name, struct Error *e);

// Whether the model puts a space in front of a text. `model` has passed spm_check_model.
bool spm_adds_space(const char *model, size_t model_bytes);

// Turns the samples with which a model can test itself when it is opened into a field that nobody
// knows: they are meant for sentences with a space put in front, and fail on a stream without.
// `model` has passed spm_check_model.
void spm_drop_self_test(char *model, size_t model_bytes);

#ifdef __cplusplus
}
#endif
#endif
