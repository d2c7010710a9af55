// Weights that come from elsewhere, or go elsewhere, than this run's checkpoints.
//
// A kind of such a place ("hf:DIR", as --init and --export have it) is a row, struct WeightsKind;
// train.c has the list, since the rows are of more than one room: data/hf/, data/llmc/,
// zero/weights/. data/flags/init.h finds the row of a flag's value. Opened, a place is a source or
// a sink: what data/ hands to zero/, element range by element range, used by
// zero/weights/weights.h.
//
// A parameter is named as in model/params.c ("attention.qkv.weight"), with the layer of its block,
// or -1. All functions return 0, or -errno or -EINVAL with a line in the error; ranks of a process
// call them at the same time.
#ifndef KERNELS_WEIGHTS_H
#define KERNELS_WEIGHTS_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct Tokenizer; // data/text/tokenizer.h
struct WeightsKind;
struct Zero;

// n elements of a parameter of the whole model, which who asks has side by side: element i is
// element weights_at of the parameter. stride 0: they are side by side there, too; else runs of
// `run` elements begin `stride` apart, as some columns of a matrix do, and this begins in one.
struct WeightsRange {
    uint64_t at; // where run 0 begins
    size_t n;
    size_t first; // the range's first element, counted from there over the runs
    size_t run, stride;
};

static inline uint64_t weights_at(const struct WeightsRange *r, size_t i) {
    i += r->first;
    return r->at + (r->stride ? i / r->run * r->stride + i % r->run : i);
}
// From element i on, how many lie side by side.
static inline size_t weights_beside(const struct WeightsRange *r, size_t i) {
    size_t left = r->stride ? r->run - (r->first + i) % r->run : r->n - i;
    return left < r->n - i ? left : r->n - i;
}
// Elements [begin, begin + n) of a range.
static inline struct WeightsRange weights_cut(const struct WeightsRange *r, size_t begin,
                                              size_t n) {
    return (struct WeightsRange){r->at, n, r->first + begin, r->run, r->stride};
}

struct ImportSource {
    const struct WeightsKind *kind;
    enum Dtype dtype; // of the files; NDTYPE: they say nothing of the format wished for
    size_t seq_len;   // of the longest sequences that the model was made for; 0: they do not say
    const char *told; // lines to be told of the files, a line break behind each; NULL: none
    // Reads elements of a parameter as fp32; all must be finite.
    int (*read)(void *context, int layer, const char *name, const struct WeightsRange *range,
                float *out, struct Error *e);
    // Whether the source has a parameter; and whether it has nothing but those that were asked for.
    int (*ask)(void *context, int layer, const char *name, struct Error *e);
    int (*asked_all)(void *context, struct Error *e);
    // In place of these three, of a source of zero/'s own: all ranks load its master weights.
    int (*load)(void *context, struct Zero *z, struct Error *e);
    void (*close)(void *context);
    void *context; // NULL: there is no source
};

struct ExportSink {
    // Elements of a parameter, by any rank. NULL: there is no sink.
    int (*write)(void *context, int layer, const char *name, const struct WeightsRange *range,
                 const float *values, struct Error *e);
    // Before all others: one of the parameters, in the order of the model.
    int (*list)(void *context, int layer, const char *name, struct Error *e);
    // When all are listed, before anything is trained: is there room on the disk?
    int (*room)(void *context, struct Error *e);
    int (*make)(void *context, struct Error *e);   // rank 0: the files
    int (*join)(void *context, struct Error *e);   // then a process without rank 0
    int (*sync)(void *context, struct Error *e);   // each rank, behind its last range
    int (*commit)(void *context, struct Error *e); // rank 0: the whole has its name
    void (*abandon)(void *context);                // rank 0, where something went wrong
    void *context;                                 // of this process
    void (*close)(void *context);
};

// What is to be exported.
struct ExportModel {
    const char *flags; // what the model is, as a JSON object of complete flags (data/hf/config.h)
    enum Dtype dtype;  // of the files
    const struct ImportSource *from;   // where the model came from; NULL: it was made here
    const struct Tokenizer *tokenizer; // of the run's text; NULL: it is not known yet
    const char *chat_template;         // --chat-template; NULL: nobody says
};

struct WeightsKind {
    const char *prefix, *place; // "hf:" and "DIR"
    // --init: what the model at `path` is, as a JSON object of flags (hf_config_complete fills in
    // what follows from others), and *where that is said, for error lines; free() both.
    int (*flags)(const char *path, char **text, char **where, struct Error *e);
    // Opens the source; it is closed by its close. `path` outlives it. NULL: it is no source.
    int (*open)(const char *path, struct ImportSource *out, struct Error *e);
    // Opens the sink: refuses what such files cannot say, and a path that exists. model->flags are
    // read now, model->from must outlive the sink. NULL: it is no sink.
    int (*make)(const char *path, const struct ExportModel *model, struct ExportSink *out,
                struct Error *e);
};

#endif
