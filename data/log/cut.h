// Cutting log.jsonl back to the step that a run goes on from: its last reader before it is written
// on, who looks at each line and tells what is not as it was written.
//
// A line is a JSON object with a step and nothing else, or it goes. Lines of steps, which have a
// loss, must rise: where they do not, as few go as can (a step that stands twice stays where it
// stood first). All other lines stay where they are: they may come again, as at each end of a run
// that is done already, and a step's breakdown comes behind the next step. Steps that are not there
// are told. None of it ends the run, whose weights are right.
//
// Lines of validations and so on that are missing are not found: nobody knows that they were there.
//
// Called by log.c.
#ifndef DATA_LOG_CUT_H
#define DATA_LOG_CUT_H
#include "kernels/base.h"

#include <stdio.h>

// Replaces the file `path`, which is open as `from`, by the lines up to `last_step` that are as
// they should be. NULL: there is none, and none is made. Tells on standard error, in one line each,
// which lines went and which steps from 1 to last_step are missing. Reads twice, and takes 8 bytes
// a line and three times that where steps do not rise. Errors: -errno, and the old file stands.
int log_cut_back(FILE *from, const char *path, int64_t last_step, struct Error *e);

#endif
