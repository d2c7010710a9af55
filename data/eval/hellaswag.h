// HellaSwag (Zellers et al. 2019, arXiv 1905.07830): which of four endings follows a context?
//
// Two kinds of files, told apart by their first bytes:
//
//   JSONL   the data set's own: an object a line, with activity_label, ctx, ctx_a, ctx_b, endings
//           and label. The texts are encoded by the run's tokenizer, for two protocols:
//             lm-eval's  "LABEL: CTX_A Ctx_b", cleaned (clean.h), a space and the cleaned ending,
//                        encoded as one text; the context is as many of its tokens as the context
//                        has when encoded alone. A text that is too long loses its beginning
//             llm.c's    ctx, and a space with the ending, encoded separately
//   .bin    llm.c's, magic 20240522: 256 int32 (magic, version 1, items, bytes of the longest),
//           then for each item uint16: 65535, its bytes, its number, label, endings, and for the
//           context and each ending a count and ids. The ids are GPT-2's, without the text, so only
//           llm.c's protocol is possible.
//
// If the tokenizer has a begin token, each sequence begins with it. Text never becomes a control
// token. llm.c stops at an item that is longer than the model's sequences; so a .bin with such an
// item is refused, and a JSONL file has lm-eval's protocol alone.
//
// Called by evals.c; fuzzed by tests/fuzz/fuzz_eval.c.
#ifndef DATA_EVAL_HELLASWAG_H
#define DATA_EVAL_HELLASWAG_H
#include "data/eval/items.h"
#include "data/text/tokenizer.h"

enum { GPT2_VOCAB = 50257 };

struct EvalSpec {
    const struct Tokenizer *tokenizer;
    size_t vocab, seq_len; // of the model
    size_t limit;          // items to read; 0: all
};

// Fills in *out from a file of `n` bytes and a zero byte; call items_free also after an error.
// `name` opens the error line. Errors: -EINVAL with the line, or the item, and what is wrong.
int hellaswag_parse(struct EvalItems *out, const struct EvalSpec *spec, const char *name,
                    const char *bytes, size_t n, struct Error *e);

// ---- hellaswag_bin.c ----
bool hellaswag_bin_detect(const char *bytes, size_t n); // true: the file is llm.c's
// As hellaswag_parse, for llm.c's file.
int hellaswag_bin_parse(struct EvalItems *out, const struct EvalSpec *spec, const char *name,
                        const char *bytes, size_t n, struct Error *e);

#endif
