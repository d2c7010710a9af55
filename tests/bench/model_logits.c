// The logits that a Hugging Face folder's model has here, for scripts/dev/hf_models.sh to hold
// against transformers.
//
//   model_logits FOLDER fp32|bf16 IDS OUT
//
// IDS: int32 ids of one sequence of T tokens; OUT: (T, V) fp32. Status 2, with a line, for what
// cannot be read, and for more tokens than have their logits computed at a time.
#include "tests/lib/hf_rank.h"
#include "data/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_all(const char *path, const void *bytes, size_t n, struct Error *e) {
    FILE *f = fopen(path, "wb");
    bool whole = f && fwrite(bytes, 1, n, f) == n;
    return (f && fclose(f)) || !whole ? error_set(e, -EIO, E_FILE_WRITE, "cannot write %s", path)
                                      : 0;
}

static int run(const char *folder, enum Dtype dtype, const char *ids, const char *out,
               struct Error *e) {
    struct HfModel model = {0};
    struct Rank r = {0};
    struct RankSettings s = {.batch = 1,
                             .nmicro = 1,
                             .threads = (int)sysconf(_SC_NPROCESSORS_ONLN),
                             .device = DEVICE_CPU,
                             .grad_dtype = dtype,
                             .device_bytes = SIZE_MAX,
                             .ranks = 1};
    char *tokens = NULL;
    size_t bytes = 0, rows = 0;
    int err = file_read(ids, 1 << 20, &tokens, &bytes, e);
    size_t t = bytes / sizeof(int32_t);
    if (!err)
        err = hf_rank_config(folder, t, dtype, &s.model, e);
    if (!err)
        err = hf_model_open(&model, folder, e);
    if (!err)
        err = hf_rank_open(&r, &s, &model, e);
    if (!err) {
        int32_t *host = feed_host(&r.feed);
        memcpy(host, tokens, t * sizeof *host);
        memset(host + t, 0, t * sizeof *host); // targets, whose losses nobody looks at
        float *logits = hf_rank_logits(&r, &rows);
        err = rows == t ? write_all(out, logits, t * s.model.vocab * sizeof *logits, e)
                        : error_set(e, -EINVAL, E_SHAPE_RANGE,
                                    "%s: %zu tokens: expected at most %zu", ids, t, rows);
        free(logits);
    }
    rank_close(&r);
    hf_model_close(&model);
    free(tokens);
    return err;
}

int main(int argc, char **argv) {
    struct Error e = {0};
    bool bf16 = argc == 5 && strcmp(argv[2], "bf16") == 0;
    if (argc != 5 || (!bf16 && strcmp(argv[2], "fp32") != 0)) {
        fprintf(stderr, "usage: model_logits FOLDER fp32|bf16 IDS OUT\n");
        return 2;
    }
    if (!run(argv[1], bf16 ? BF16 : F32, argv[3], argv[4], &e))
        return 0;
    fprintf(stderr, "model_logits: %s\n", e.text);
    return 2;
}
