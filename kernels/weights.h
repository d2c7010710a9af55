// Weights that come from files, or go to files, which are no checkpoints of ours: what data/ hands
// to zero/, element range by element range.
//
// A parameter is named as in model/params.c ("attention.qkv.weight"), with the layer of its block,
// or -1. All functions return 0, or -errno or -EINVAL with a line in the error; ranks of a process
// call them at the same time. Filled by data/hf/model.h and data/hf/export.h; used by
// zero/run/import.h and export.h.
#ifndef KERNELS_WEIGHTS_H
#define KERNELS_WEIGHTS_H
#include "kernels/base.h"

struct ImportSource {
    // Reads elements [first, first + n) of a parameter as fp32. NULL: there is no source.
    int (*read)(void *context, int layer, const char *name, size_t first, size_t n, float *out,
                struct Error *e);
    // Whether the source has a parameter; and whether it has nothing but those that were asked for.
    int (*ask)(void *context, int layer, const char *name, struct Error *e);
    int (*asked_all)(void *context, struct Error *e);
    void *context;
};

struct ExportSink {
    // Elements [first, first + n) of a parameter, by any rank. NULL: there is no sink.
    int (*write)(void *context, int layer, const char *name, size_t first, size_t n,
                 const float *values, struct Error *e);
    // Before all others: one of the parameters, in the order of the model.
    int (*list)(void *context, int layer, const char *name, struct Error *e);
    int (*make)(void *context, struct Error *e);   // rank 0: the files
    int (*join)(void *context, struct Error *e);   // then a process without rank 0
    int (*sync)(void *context, struct Error *e);   // each rank, behind its last range
    int (*commit)(void *context, struct Error *e); // rank 0: the whole has its name
    void (*abandon)(void *context);                // rank 0, where something went wrong
    void *context;                                 // of this process
};

#endif
