// The table of libraries, as text. It is made once, by the build (scripts/dev/probe.sh); this file
// only carries it into the program. Called by train.c for --version. Next: the Makefile.
#include "kernels/features.h"

#include "features_found.h" // build/MODE: FEATURE_TABLE

const char *features_table(void) {
    return FEATURE_TABLE;
}
