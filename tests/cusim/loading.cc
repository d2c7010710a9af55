// Kernels that CUDA loads when they are first launched, at its worst: every launch waits until its
// GPU is idle, and has the driver to itself meanwhile. A program whose kernels wait for what another
// thread has yet to launch comes to no end then, and host.cc says so.
//
// CUSIM_LOAD_LATE=1 asks for it where ./train is what runs.
#include "tests/cusim/internal.h"

#include <stdlib.h>

namespace cusim {

static bool late;
static const Host *loading; // who has the driver to itself

__attribute__((constructor)) static void find_loading() {
    late = getenv("CUSIM_LOAD_LATE");
}

void wait_for_loading() {
    const Host *me = host_self();
    if (loading && loading != me)
        host_wait("the driver, which loads a kernel for another thread", [] { return !loading; });
}

void load_kernel() {
    wait_for_loading();
    if (!late)
        return;
    loading = host_self();
    gpu_finish("its GPU to be idle, since it loads a kernel");
    loading = nullptr;
}

} // namespace cusim

void sim_load_late(bool yes) {
    cusim::late = yes;
}
