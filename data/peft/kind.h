// PEFT's folders of adapters, as a source and as a sink of weights: for --init-adapter and
// --export-adapter.
//
// Parameters are an adapter's ("q.lora_A" of a layer: model/adapter.c). Read next: adapter.h.
#ifndef DATA_PEFT_KIND_H
#define DATA_PEFT_KIND_H
#include "data/peft/config.h"
#include "kernels/weights.h"

// Writes DIR's rank, alpha, dropout and targets into *text, a JSON object of the flags that say so;
// free() it. Errors: peft_config_read's.
int peft_flags(const char *dir, bool gpt2, char **text, struct Error *e);

// Opens the source. model: the base's flags (data/flags/init.h). Errors: peft_adapter_open's.
int peft_source_open(const char *dir, const char *model, struct ImportSource *out, struct Error *e);

// Opens a sink that makes DIR, in fp32. c: rank, alpha and dropout; base: the folder of the base,
// NULL: it has none. Errors: -EEXIST, -errno.
int peft_sink_open(const char *dir, const char *model, const struct PeftConfig *c, const char *base,
                   struct ExportSink *out, struct Error *e);

#endif
