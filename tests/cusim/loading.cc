// Kernels that CUDA loads when they are first launched.
//
// At its worst: every launch waits until its GPU is idle, and has the driver to itself meanwhile. A
// program whose kernels wait for what another thread has yet to launch comes to no end then, and
// host.cc says so. sim_load_late asks for it, or CUSIM_LOAD_LATE=1 where ./train is what runs.
//
// A library's kernels take memory of the GPU from then on.
#include "tests/cusim/internal.h"

#include <set>
#include <stdlib.h>

namespace cusim {

static const size_t LOADED_BYTES = 1 << 20;

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

void load_kernel(const std::string &name) {
    static std::set<std::pair<int, std::string>> loaded;
    load_kernel();
    if (loaded.insert({current_gpu(), name}).second)
        memory_alloc(current_gpu(), LOADED_BYTES);
}

} // namespace cusim

void sim_load_late(bool yes) {
    cusim::late = yes;
}
