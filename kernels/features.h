// The libraries that this binary was built with: the table that the build prints and `./train
// --version` repeats. scripts/dev/probe.sh looks for the libraries and writes the table.
#ifndef KERNELS_FEATURES_H
#define KERNELS_FEATURES_H

// Returns one line per library, each ending in a newline: name, version or "not found", the package
// to install, its use. The first line is the heading.
const char *features_table(void);

#endif
