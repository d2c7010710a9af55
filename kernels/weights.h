// Import and export of weights, to and from other files than this run's checkpoints.
//
// A kind of such files ("hf:DIR", as --init and --export have it) is a row, struct WeightsKind;
// train.c has the list, since several rooms have rows: data/hf/, data/llmc/, zero/weights/.
// data/flags/init.h finds the row of a flag's value. An open row is a source or a sink: an
// interface between data/ and zero/, element range by element range, used by
// zero/weights/weights.h.
//
// A parameter is named as in model/params.c ("attention.qkv.weight", "q.lora_A"), with the layer of
// its block, or -1. All functions return 0, or -errno or -EINVAL with a line in the error; ranks of
// a process call them at the same time.
#ifndef KERNELS_WEIGHTS_H
#define KERNELS_WEIGHTS_H
#include "kernels/base.h"
#include "kernels/dtype.h"

struct Tokenizer; // data/text/tokenizer.h
struct WeightsKind;
struct Zero;

// n elements of a parameter of the whole model, adjacent in the caller's memory: element i is
// element weights_at of the parameter. stride 0: adjacent there, too; else runs of `run` elements
// begin `stride` apart, like some columns of a matrix, and the range begins within one.
struct WeightsRange {
    uint64_t at; // where run 0 begins
    size_t n;
    size_t first; // index of the range's first element, counted from there over the runs
    size_t run, stride;
};

static inline uint64_t weights_at(const struct WeightsRange *r, size_t i) {
    i += r->first;
    return r->at + (r->stride ? i / r->run * r->stride + i % r->run : i);
}
// Returns how many elements from element i on are adjacent.
static inline size_t weights_beside(const struct WeightsRange *r, size_t i) {
    size_t left = r->stride ? r->run - (r->first + i) % r->run : r->n - i;
    return left < r->n - i ? left : r->n - i;
}

struct ImportSource {
    const struct WeightsKind *kind;
    bool adapters;       // its parameters are the adapters', and not the model's
    enum Dtype dtype;    // of the files; NDTYPE: no preference
    size_t seq_len;      // longest sequences that the model was made for; 0: unknown
    const char *remarks; // lines to print about the files, each with a line break; NULL: none
    // Reads elements of a parameter as fp32; all must be finite.
    int (*read)(void *context, int layer, const char *name, const struct WeightsRange *range,
                float *out, struct Error *e);
    // Succeed if the source has a parameter; if it has no others than those that were asked for.
    // Both NULL: a file that opens has them all.
    int (*ask)(void *context, int layer, const char *name, struct Error *e);
    int (*check_all_asked)(void *context, struct Error *e);
    // Instead of these three, in zero/'s own source: all ranks load its master weights.
    int (*load)(void *context, struct Zero *z, struct Error *e);
    void (*close)(void *context);
    void *context; // NULL: there is no source
};

struct ExportSink {
    bool adapters; // as in struct ImportSource
    // Writes elements of a parameter, on any rank. NULL: there is no sink.
    int (*write)(void *context, int layer, const char *name, const struct WeightsRange *range,
                 const float *values, struct Error *e);
    // Called first, for each parameter in the order of the model; NULL: no need.
    int (*list)(void *context, int layer, const char *name, struct Error *e);
    // Called when all are listed, before training: checks that the disk has enough space.
    int (*check_room)(void *context, struct Error *e);
    int (*make)(void *context, struct Error *e);   // rank 0: creates the files
    int (*join)(void *context, struct Error *e);   // then a process without rank 0
    int (*sync)(void *context, struct Error *e);   // each rank, after its last range
    int (*commit)(void *context, struct Error *e); // rank 0: gives the complete files their names
    void (*abandon)(void *context);                // rank 0, after an error
    void *context;                                 // of this process
    void (*close)(void *context);
};

// The model to export.
struct ExportModel {
    const char *flags; // the model, as a JSON object of complete flags (data/hf/config.h)
    enum Dtype dtype;  // of the files
    const struct ImportSource *from;   // the model's source; NULL: it was made here
    const struct Tokenizer *tokenizer; // of the run's text; NULL: not known yet
    const char *chat_template;         // --chat-template; NULL: not given
};

struct WeightsKind {
    const char *prefix, *place; // "hf:" and "DIR"
    // --init: the model at `path`, as a JSON object of flags (hf_config_complete fills in those
    // that follow from others), and *where they were found, for error lines; free() both.
    int (*flags)(const char *path, char **text, char **where, struct Error *e);
    // Opens the source; its close() closes it. `path` outlives it. NULL: not a source.
    int (*open)(const char *path, struct ImportSource *out, struct Error *e);
    // Opens the sink: refuses what such files cannot express, and a path that exists. model->flags
    // are read now, model->from must outlive the sink. NULL: not a sink.
    int (*make)(const char *path, const struct ExportModel *model, struct ExportSink *out,
                struct Error *e);
};

#endif
