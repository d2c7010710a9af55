// Checks what a file of --trace-zero says of itself (docs/trace.md), for any run.
#ifndef TESTS_LIB_ZERO_TRACE_H
#define TESTS_LIB_ZERO_TRACE_H
#include "zero/rank/rank.h"

struct cJSON;

// Two operations that touch the same bytes, one of which writes, and that no path of `after`
// orders. text: the first such pair.
struct Unordered {
    size_t pairs, checked;
    char text[256];
};

// What one rank's file must say: its accounts, and what it sent and moved in the step.
struct ZeroTraceOf {
    size_t used[NTIER][NTAG];
    uint64_t sent;
    struct Moved moved;
    bool moved_known;
};
void zero_trace_note(const struct Rank *r, struct ZeroTraceOf *out);

struct cJSON *zero_trace_read(const char *path); // cJSON_Delete() it

// Each fails the test. blocks: those that exist at the step's end are the accounts. lives: in their
// blocks, and never two of the same bytes at a time. times: the first hop or unit begins at 0, and
// an operation after those that it is `after`, which come before it in the file. bytes: as the rank
// counted them.
void zero_trace_check_blocks(const struct cJSON *file, const struct ZeroTraceOf *of);
void zero_trace_check_lives(const struct cJSON *file);
void zero_trace_check_times(const struct cJSON *file);
void zero_trace_check_bytes(const struct cJSON *file, const struct ZeroTraceOf *of);
struct Unordered zero_trace_unordered(const struct cJSON *file);
void zero_trace_check(const struct cJSON *file, const struct ZeroTraceOf *of); // all of it

// Trains s->ranks <= ZERO_TRACE_RANKS ranks some steps, with a trace in the folder, and checks all
// of that in the file of each rank.
enum { ZERO_TRACE_RANKS = 4 };
void zero_trace_check_run(const struct RankSettings *s, const char *folder);

#endif
