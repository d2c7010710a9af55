// Stands in for data/text/spm.cc where SentencePiece is not installed: every call says so. Chosen
// by the Makefile.
#include "data/text/spm.h"
#include "kernels/base.h"

#include <errno.h>

static int refuse(const char *tokenizer, struct Error *e) {
    return error_set(e, -ENOTSUP, E_BUILD_LACKS,
                     "--tokenizer %s: this program was built without SentencePiece: install "
                     "libsentencepiece-dev and build again, or use --tokenizer byte",
                     tokenizer);
}

int spm_train(const char *text, size_t text_bytes, size_t pieces, char **model, size_t *model_bytes,
              struct Error *e) {
    (void)text, (void)text_bytes, (void)model, (void)model_bytes;
    char tokenizer[32];
    snprintf(tokenizer, sizeof tokenizer, "train:%zu", pieces);
    return refuse(tokenizer, e);
}

int spm_open(struct Spm **out, const char *model, size_t model_bytes, const char *name,
             struct Error *e) {
    (void)out, (void)model, (void)model_bytes;
    return refuse(name, e);
}

void spm_close(struct Spm *s) {
    (void)s;
}

// Never called: spm_open has refused every model.
size_t spm_vocab(const struct Spm *s) {
    CHECK(0, "spm_vocab(%p) without SentencePiece", (const void *)s);
}

int spm_encode(const struct Spm *s, const char *text, size_t text_bytes, bool begins,
               struct Ids *ids, struct Error *e) {
    (void)text, (void)text_bytes, (void)begins, (void)ids, (void)e;
    CHECK(0, "spm_encode(%p) without SentencePiece", (const void *)s);
}

int32_t spm_begin(const struct Spm *s) {
    CHECK(0, "spm_begin(%p) without SentencePiece", (const void *)s);
}

int32_t spm_end(const struct Spm *s) {
    CHECK(0, "spm_end(%p) without SentencePiece", (const void *)s);
}

int32_t spm_control(const struct Spm *s, const char *text) {
    CHECK(0, "spm_control(%p, %s) without SentencePiece", (const void *)s, text);
}

const char *spm_name(const struct Spm *s, size_t id) {
    CHECK(0, "spm_name(%p, %zu) without SentencePiece", (const void *)s, id);
}

const char *spm_piece(const struct Spm *s, size_t id, size_t *bytes) {
    CHECK(0, "spm_piece(%p, %zu, %p) without SentencePiece", (const void *)s, id, (void *)bytes);
}
