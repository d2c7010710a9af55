// Reports a kernel that fails.
//
// A launch only queues a kernel. If it fails when it runs, for example by an address out of bounds,
// CUDA reports that at some later unrelated call, and the context is lost. With
// Device.check_launches (--check-launches) the host waits after each launch, so that the failing
// one is known: its line names the operation of the kernel table, the kernel and its grid, and the
// step and unit for which it ran. That removes all overlap with the host; the results are the same.
//
// Called by gpu_launch (gpu.cuh) and the kernel table (table.c), whose operations may also run
// kernels of a library.
#include "kernels/cuda/cuda.h"

#include <stdio.h>

static _Noreturn void report_failed_kernel(const struct Stream *s, const char *kernel,
                                           cudaError_t status) {
    const struct Label *l = &s->cuda->device.label;
    char where[80] = "outside a step", unit[32] = "", text[320];
    if (l->unit >= 0)
        snprintf(unit, sizeof unit, ", unit %d", l->unit);
    if (l->step)
        snprintf(where, sizeof where, "step %llu%s", (unsigned long long)l->step, unit);
    snprintf(text, sizeof text, "%s of %s, queue %d, %s", kernel, s->op ? s->op : "no operation",
             (int)s->number, where);
    kernel_fail(text, status);
}

void launch_begin(struct Stream *s, const char *op) {
    s->op = op;
    s->op_launches = s->launches;
}

void launch_done(struct Stream *s, cudaError_t status, dim3 grid, dim3 block) {
    char kernel[120];
    s->launches++;
    if (!s->cuda->device.check_launches)
        CUDA_CHECK_STATUS(status, "launch of a kernel");
    if (!s->cuda->device.check_launches)
        return;
    if (status == cudaSuccess)
        status = cudaStreamSynchronize(s->stream);
    if (status == cudaSuccess)
        return;
    snprintf(kernel, sizeof kernel, "kernel %llu (%u x %u x %u blocks of %u x %u x %u threads)",
             (unsigned long long)(s->launches - s->op_launches), grid.x, grid.y, grid.z, block.x,
             block.y, block.z);
    report_failed_kernel(s, kernel, status);
}

void launch_end(struct Stream *s) {
    cudaError_t status =
        s->cuda->device.check_launches ? cudaStreamSynchronize(s->stream) : cudaSuccess;
    if (status != cudaSuccess)
        report_failed_kernel(s, "a library's kernel", status);
    s->op = NULL;
}
