// The GPUs of this machine, counted without CUDA: for what must be settled before CUDA's first call
// (zero/rank/rank_device.c).
#ifndef KERNELS_CARDS_H
#define KERNELS_CARDS_H
#include <limits.h>

enum { CARDS_UNKNOWN = INT_MAX };

// The most that there can be; CARDS_UNKNOWN where nothing tells.
struct Cards {
    int machine; // as NVIDIA's driver lists them: not in WSL, in some containers, or of a card that
                 // is split into several (MIG)
    int shown;   // of these, by CUDA_VISIBLE_DEVICES, to this process
};
struct Cards cards_count(void);

// The driver's folder, "/proc/driver/nvidia". Tests name another.
extern const char *cards_folder;

#endif
