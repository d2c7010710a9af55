// A build without CUDA reports that it has no GPU; plans need none.
#include "kernels/cuda/work.h"

#include <errno.h>

int device_open_cuda(struct Device **out, int index, struct Error *e) {
    if (index < 0) {
        *out = plan_device_open();
        return 0;
    }
    return error_set(
        e, -ENOTSUP, E_BUILD_LACKS,
        "--device cuda: this build has no CUDA: build it with 'make cuda', which needs "
        "the CUDA Toolkit (nvcc), or use --device cpu");
}

void device_load_eagerly_cuda(void) {}

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

size_t device_get_choices(struct Device *d, void *out, size_t bytes) {
    (void)d;
    (void)out;
    (void)bytes;
    return 0;
}

int device_set_choices(struct Device *d, const void *in, size_t bytes, struct Error *e) {
    (void)d;
    (void)in;
    (void)bytes;
    (void)e;
    return 0;
}

char *device_describe_choices(struct Device *d) {
    (void)d;
    return base_format("%s", "");
}

char *device_describe_fallbacks(struct Device *d) {
    (void)d;
    return base_format("%s", "");
}

int device_set_variants(struct Device *d, const void *in, size_t bytes, struct Error *e) {
    (void)d;
    (void)in;
    (void)bytes;
    (void)e;
    return 0;
}
