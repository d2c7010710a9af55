// Counts the GPUs of this machine without CUDA: for decisions before CUDA's first call
// (zero/rank/rank_device.c).
#ifndef KERNELS_CARDS_H
#define KERNELS_CARDS_H
#include <limits.h>

enum { CARDS_UNKNOWN = INT_MAX };

// Upper bounds; CARDS_UNKNOWN if there is no information.
struct Cards {
    int machine; // as NVIDIA's driver lists them; unknown in WSL, in some containers, and with
                 // a GPU that MIG splits
    int shown;   // of these, those that CUDA_VISIBLE_DEVICES shows this process
};
struct Cards cards_count(void);

// The driver's folder, "/proc/driver/nvidia". Tests set another.
extern const char *cards_folder;

#endif
