// Footprints for people and for programs.
//
// The text is in MiB, one row per tag of each tier in use and per collective; a bound that the user
// set stands below its tier, in GB and GiB too. Where something is offloaded, there is also what
// crosses bus and disk, and the time that it takes at least. The JSON has every number in bytes, or
// seconds; there "process" is what the text calls the process itself, "all" is the text's "all". A
// plan for a GPU that is not here has neither.
#ifndef ZERO_PLAN_TABLE_H
#define ZERO_PLAN_TABLE_H
#include "zero/plan/footprint.h"

#include <stdio.h>

// measured: NULL before the run.
void table_print(FILE *out, const struct Forecast *f, const struct Footprint *measured);

// A row for each stage, of the rank that takes most in it, and the bubble; nothing of one stage.
void table_print_pipeline(FILE *out, const struct PipelineForecast *pipeline);

// Returns one JSON object; free() it. pipeline: NULL, or what its list "stages" is of, if there are
// several. advice: NULL, or what would make the run fit ("" for nothing).
char *table_json(const struct Forecast *f, const struct PipelineForecast *pipeline,
                 const struct Footprint *measured, const char *advice);

// Prints the model states of a parameter count instead of settings->model's. Errors: those of
// footprint_of_parameters; -EINVAL for what only whole blocks can say.
int table_of_parameters(FILE *out, uint64_t parameters, const struct RankSettings *settings,
                        bool json, struct Error *e);

// A whole tree as text, which it frees; free() that.
struct cJSON;
char *table_print_json(struct cJSON *tree);

// ---- chains.c ----

// Prints the hops of the group that s->show_chain names, such as "block.1", on the first rank that
// has it. Errors: -EINVAL, where the model has no such group; those of rank_open.
int chains_print(FILE *out, const struct RankSettings *s, struct Error *e);

#endif
