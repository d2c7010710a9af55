// Does a run fit, and if not, what would make it?
//
// A forecast costs some milliseconds, so the question is answered by trying: the same run at a
// higher stage, with more recomputation, with both; then with a smaller batch, which changes the
// training too.
#ifndef ZERO_FIT_H
#define ZERO_FIT_H
#include "zero/footprint.h"

#include <stdio.h>

struct FitRequest {
    const struct RankSettings *settings;
    struct PlaceMemory host; // what the machine has for all its processes, and this one takes
    int processes_here;      // on this machine
    int ranks_here;          // of this process
    bool plan;               // it may be for another machine: only --device-mem bounds it
    FILE *out;               // where the forecast is printed; NULL: nowhere
    bool json;               // print it for a program
};

// Foretells what the run takes and prints it. Errors: those of footprint_foretell and of
// place_memory; -ENOMEM for a run that does not fit, with a line that says what is too much and the
// smallest change that would make it fit, or that none does.
int fit_or_refuse(const struct FitRequest *r, struct Forecast *out, struct Error *e);

#endif
