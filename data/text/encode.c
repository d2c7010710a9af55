// Encodes by threads: see tokenizer.h.
//
// In each round every thread encodes a stretch of some 1 MiB; when all are done, their ids are
// taken. Stretches take milliseconds, and similar times, so that no thread waits long.
#include "data/text/tokenizer.h"
#include "data/bpe/bpe.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { STRETCH_BYTES = 1 << 20, THREADS_MAX = 64 };

struct EncodeStretch {
    const struct Tokenizer *t;
    struct BpeWork *work;
    struct TextPart part;
    struct Ids ids;
    pthread_t thread;
    bool started;
    int code;
    struct Error error;
};

static void *encode_stretch(void *stretch) {
    struct EncodeStretch *s = stretch;
    s->ids.count = 0;
    s->code = tokenizer_encode_part(s->t, s->work, &s->part, &s->ids, &s->error);
    return NULL;
}

// Cuts up to n stretches off the text, from *at on. Returns their number.
static size_t cut_round(struct EncodeStretch *s, size_t n, const char *text, size_t bytes,
                        size_t *at) {
    size_t count = 0;
    for (; count < n && *at < bytes; count++) {
        size_t size = tokenizer_cut(s->t, text + *at, bytes - *at, STRETCH_BYTES);
        s[count].part = (struct TextPart){text + *at, size, bytes - *at - size, *at};
        *at += size;
    }
    return count;
}

// Encodes the stretches: the first one, and those for which no thread starts, in the caller's.
static void encode_round(struct EncodeStretch *s, size_t n) {
    for (size_t i = 1; i < n; i++)
        s[i].started = !pthread_create(&s[i].thread, NULL, encode_stretch, &s[i]);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || !s[i].started)
            encode_stretch(&s[i]);
    for (size_t i = 1; i < n; i++)
        if (s[i].started)
            pthread_join(s[i].thread, NULL);
}

// Passes on the ids of the stretches, in their order. If the text could not be cut after one, it is
// encoded from there on in one stretch, and *at becomes its end.
static int emit_round(struct EncodeStretch *s, size_t n, size_t bytes, size_t *at, IdsTaker *take,
                      void *context, struct Error *e) {
    int code = 0;
    for (size_t i = 0; !code && i < n; i++) {
        struct TextPart *p = &s[i].part;
        if (s[i].code == -EAGAIN) {
            *p = (struct TextPart){p->text, bytes - p->at, 0, p->at};
            *at = bytes;
            n = i + 1;
            encode_stretch(&s[i]);
        }
        code = s[i].code;
        if (code)
            *e = s[i].error;
        else
            code = take(context, &s[i].ids, p->at + p->bytes, e);
    }
    return code;
}

static int emit_begin(const struct Tokenizer *t, IdsTaker *take, void *context, struct Error *e) {
    int32_t id = tokenizer_begin(t);
    struct Ids ids = {&id, 1, 1};
    return id < 0 ? 0 : take(context, &ids, 0, e);
}

int tokenizer_encode_text(const struct Tokenizer *t, const char *text, size_t bytes, size_t threads,
                          IdsTaker *take, void *context, struct Error *e) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = size_min(threads ? threads : cores > 0 ? (size_t)cores : 1, THREADS_MAX), at = 0;
    n = size_max(1, size_min(n, ceil_div(bytes, STRETCH_BYTES)));
    struct EncodeStretch *s = base_alloc_zeroed(n * sizeof *s);
    for (size_t i = 0; i < n; i++) {
        s[i].t = t;
        s[i].work = tokenizer_work_open(t);
    }
    int code = emit_begin(t, take, context, e);
    while (!code && at < bytes) {
        size_t count = cut_round(s, n, text, bytes, &at);
        encode_round(s, count);
        code = emit_round(s, count, bytes, &at, take, context, e);
    }
    for (size_t i = 0; i < n; i++) {
        bpe_work_close(s[i].work);
        ids_free(&s[i].ids);
    }
    free(s);
    return code;
}
