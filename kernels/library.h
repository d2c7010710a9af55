// Opens shared libraries when they are needed.
//
// cuBLASLt and NCCL have hundreds of megabytes. One binary runs with and without them, and a run on
// the CPU does not load them. Their headers are needed to build, their files only to run.
#ifndef KERNELS_LIBRARY_H
#define KERNELS_LIBRARY_H
#include "kernels/base.h"

#ifdef __cplusplus
extern "C" {
#endif

// Opens a file that the system finds by its name, and sets function[i] to the address of symbol[i],
// for n of them. The library stays open until the process ends. Errors: -ENOTSUP; the line names
// the file, and `package`, which contains it.
int library_open(const char *file, const char *const symbol[], void *function[], size_t n,
                 const char *package, struct Error *e);

#ifdef __cplusplus
}
#endif

#endif
