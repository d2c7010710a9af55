// The sources that --data names, each with its weight.
//
// A source is a line of the text, NAME or NAME:WEIGHT; a repeated flag makes several lines. If a
// file has the name NAME:WEIGHT, it is that file, with weight 1; the number in http://HOST:80 is no
// weight. Called by data/text/loader_source.c and loader_predict.c.
#ifndef DATA_TEXT_NAMED_H
#define DATA_TEXT_NAMED_H
#include "kernels/base.h"

struct NamedSource {
    char *name;
    size_t weight;
};

struct NamedSources {
    struct NamedSource *source;
    size_t count;
};

// Reads the sources of --data, with their weights. Errors: -EINVAL for an empty name, a malformed
// weight, or more sources than MIX_SOURCES_MAX.
int named_read(struct NamedSources *n, const char *data, struct Error *e);
void named_free(struct NamedSources *n);

#endif
