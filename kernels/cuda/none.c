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

struct DeviceMemory device_memory_cuda(int index) {
    CHECK(false, "no CUDA in this program, GPU %d", index);
}

uint64_t device_identity_cuda(int index) {
    CHECK(false, "no CUDA in this program, GPU %d", index);
}

char *device_name_cuda(int index) {
    CHECK(false, "no CUDA in this program, GPU %d", index);
}
