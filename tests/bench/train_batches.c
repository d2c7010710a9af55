// The samples that a run trains on, for scripts/dev/real_model.sh to train PyTorch on the same.
//
//   train_batches FOLDER TRAIN HELDOUT SEQ_LEN SEED SAMPLES
//
// FOLDER: a model of Hugging Face with its tokenizer; TRAIN and HELDOUT: --data and --val-data. For
// each of the first SAMPLES of the training sequence it writes 3 SEQ_LEN int32: the inputs, the
// targets (-1: not counted), and where the document of each input begins (kernels/batch.h). Status
// 2, with a line, for what cannot be read.
#include "data/text/data.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int run(char **argv, struct Error *e) {
    const size_t T = strtoull(argv[4], NULL, 10), samples = strtoull(argv[6], NULL, 10);
    struct DataSpec spec = {.data = argv[2],
                            .val_data = argv[3],
                            .model = argv[1],
                            .folder = argv[1],
                            .processes = 1,
                            .seq_len = T,
                            .seed = strtoull(argv[5], NULL, 10)};
    struct Data *d = NULL;
    int err = data_open(&d, &spec, e);
    int32_t *row = base_alloc(3 * T * sizeof *row);
    for (size_t i = 0; !err && i < samples; i++) {
        struct Batch batch = {row, row + T, row + 2 * T};
        err = data_train_batch(d, i, 1, &batch, e);
        if (!err && fwrite(row, sizeof *row, 3 * T, stdout) != 3 * T)
            err = error_set(e, -EIO, E_FILE_WRITE, "cannot write to standard output");
    }
    free(row);
    data_close(d);
    return err;
}

int main(int argc, char **argv) {
    struct Error e = {0};
    if (argc != 7)
        error_set(&e, -EINVAL, E_FLAG_STRAY_WORD,
                  "usage: train_batches FOLDER TRAIN HELDOUT SEQ_LEN SEED SAMPLES");
    if (argc != 7 || run(argv, &e)) {
        fprintf(stderr, "train_batches: %s\n", e.text);
        return 2;
    }
    return 0;
}
