// A build without nvcc has no GPU, and says so.
#include "kernels/device.h"

#include <errno.h>

int device_open_cuda(struct Device **out, int index, struct Error *e) {
    (void)out;
    (void)index;
    return error_set(e, -ENOTSUP,
                     "--device cuda: this build has no CUDA: install the CUDA Toolkit (nvcc) and "
                     "build again, or use --device cpu");
}

int device_count_cuda(void) {
    return 0;
}

size_t device_free_cuda(int index) {
    (void)index;
    return 0;
}
