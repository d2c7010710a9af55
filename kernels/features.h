// Which libraries this binary was built with: the table that the build prints and `./train
// --version` repeats. scripts/dev/probe.sh looks for the libraries and writes the table down.
#ifndef KERNELS_FEATURES_H
#define KERNELS_FEATURES_H

// One line per library, each ending in a newline: name, version or "not found", the package to
// install, what it is for. The first line is the heading.
const char *features_table(void);

#endif
