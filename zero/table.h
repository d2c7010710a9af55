// Footprints for people and for programs.
//
// The text is in MiB, one row per tag and per collective; the JSON has every number in bytes. There
// "process" is what the text calls the process itself, and "all" is the text's "all". A plan for a
// GPU that is not here has neither.
#ifndef ZERO_TABLE_H
#define ZERO_TABLE_H
#include "zero/footprint.h"

#include <stdio.h>

// measured: NULL before the run.
void table_print(FILE *out, const struct Forecast *f, const struct Footprint *measured);

// One object; free() it. advice: NULL, or what would make the run fit ("" for nothing).
char *table_json(const struct Forecast *f, const struct Footprint *measured, const char *advice);

// Prints the model states of a parameter count; options->device_tier is not looked at. Errors:
// those of footprint_of_parameters.
int table_of_parameters(FILE *out, uint64_t parameters, const struct ZeroOptions *options,
                        int ranks, bool json, struct Error *e);
char *table_json_states(const struct ModelStates *s, const struct ZeroOptions *options);

#endif
