// --plan --html FILE: a calculator of memory and traffic, one web page that needs no network.
//
// The page has dials: model, dtype, stage, offload, ranks, micro-batch. Each setting of them is a
// command line of its own, `./train --plan ...`; its forecast is made here, as that command makes
// it, and goes into a table in the page. The page computes no byte: it looks them up. A dial that
// the user's command line sets already has that one value; the line's other flags are in every
// command. What a command would refuse has the refusal in place of numbers.
//
// Called by train.c. page.html is the page around the table; footprint.h makes the forecasts.
#ifndef ZERO_PLAN_PAGE_H
#define ZERO_PLAN_PAGE_H
#include "zero/settings/settings.h"

// Reads a command line into a rank's settings, which live until `forget`. Errors: those of a plan.
typedef int ReadLine(void *context, int argc, char **argv, struct RankSettings *out,
                     struct Error *e);

struct PageRequest {
    const struct FlagsSaid *said; // on the user's line
    int argc;                     // that line, which has --html
    char **argv;
    ReadLine *read;
    void (*forget)(void *context); // after each read, also one that failed
    void *context;
    const char *path;
};

// Writes the page, in place of one that was there, and prints a line about it. Errors: -errno of
// the file; where every command is refused, that of the last.
int page_write(const struct PageRequest *r, struct Error *e);

#endif
