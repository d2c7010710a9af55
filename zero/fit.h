// Does a run fit, and if not, what would make it?
//
// A forecast costs some milliseconds, so the question is answered by trying: the same run at a
// higher stage, with more recomputation, with a smaller batch; first each change alone, then
// together.
#ifndef ZERO_FIT_H
#define ZERO_FIT_H
#include "zero/footprint.h"

struct Room {
    size_t device_bytes;  // for each rank; SIZE_MAX: not bounded
    size_t machine_bytes; // for all ranks of this process; likewise
};

// What a user might say otherwise.
struct Change {
    int stage;
    enum Recompute recompute;
    size_t batch;
};

// The settings of the run with a change, as if the user had written it. Not 0: there is no such
// run (a batch may not divide --global-batch).
typedef int ChangedSettings(void *context, const struct Change *c, struct RankSettings *out);

struct FitRequest {
    const struct RankSettings *settings;
    struct Room room;
    size_t process_bytes; // as of footprint_foretell
    int ranks_here;       // likewise
    bool json;            // print it for a program
    ChangedSettings *changed;
    void *context; // of changed
};

// Foretells what the run takes and prints it. Errors: those of footprint_foretell; -ENOMEM for a
// run that does not fit, with a line that says what is too much and the smallest change that would
// make it fit, or that none does.
int fit_or_refuse(const struct FitRequest *r, struct Forecast *out, struct Error *e);

#endif
