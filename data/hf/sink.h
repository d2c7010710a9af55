// A folder of tensors as a sink of weights: a model's (export.c), or an adapter's (data/peft/).
//
// The folder is complete or absent (write.h). Whoever exports says how parameters are tensors, and
// puts files beside them. Read next: pieces.h, write.h.
#ifndef DATA_HF_SINK_H
#define DATA_HF_SINK_H
#include "data/hf/pieces.h"

struct HfSink {
    const char *flag;   // "--export"
    const char *prefix; // of the path, in the line that says that it is exported: "hf:"
    const char *stem;   // of the files' names
    enum Dtype dtype;
    void *owner; // the argument of these three
    // Writes the pieces of a parameter, each a tensor; returns their number.
    size_t (*pieces)(const void *owner, int layer, const char *param,
                     struct HfPiece pieces[HF_PIECES_MAX]);
    int (*put)(void *owner, struct Error *e); // puts other files, small ones, by hf_writer_put
    void (*free)(void *owner);                // frees the owner, who has this struct

    // The rest is hf_sink's own.
    char *path;
    struct HfPiece *piece; // of all parameters, in the order in which they are listed
    size_t npiece;
    struct HfWriter writer;
    bool laid_out;
};

// Takes the path, and refuses a folder that exists. Errors: hf_writer_check's. hf_sink_close is due
// also after an error.
int hf_sink_open(struct HfSink *s, const char *path, struct Error *e);
void hf_sink_close(void *sink);

// Returns the sink, whose `close` is hf_sink_close.
struct ExportSink hf_sink(struct HfSink *s);

#endif
