// Shared memory of the block that runs.
//
// Static __shared__ variables lie in one section of the binary (include/cusim/language.h), dynamic
// shared memory in a mapping of its own whose unused rest may not be touched.
#include "tests/cusim/block.h"

#include <sys/mman.h>

extern "C" char __start_cusim_shared[] __attribute__((weak));
extern "C" char __stop_cusim_shared[] __attribute__((weak));

namespace cusim {

static const size_t DYNAMIC_SPAN = 1 << 20;
static char *dynamic;
static size_t dynamic_bytes;

char *shared_open(size_t bytes) {
    if (!dynamic) {
        void *p = mmap(nullptr, DYNAMIC_SPAN, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
            die("no memory for a block's shared memory");
        dynamic = static_cast<char *>(p) + DYNAMIC_SPAN / 2;
    }
    dynamic_bytes = bytes;
    return dynamic;
}

void shared_poison() {
    raw_set(dynamic, 0xff, dynamic_bytes);
    if (__start_cusim_shared)
        raw_set(__start_cusim_shared, 0xff, (size_t)(__stop_cusim_shared - __start_cusim_shared));
}

bool shared_hook(uintptr_t a, size_t bytes, Use use, const void *caller) {
    uintptr_t start = reinterpret_cast<uintptr_t>(__start_cusim_shared);
    if (a - start < reinterpret_cast<uintptr_t>(__stop_cusim_shared) - start)
        return true;
    uintptr_t base = reinterpret_cast<uintptr_t>(dynamic), span = base - DYNAMIC_SPAN / 2;
    if (!dynamic || a - span >= DYNAMIC_SPAN)
        return false;
    if (a < base || a + bytes > base + dynamic_bytes)
        die_at(caller, "%s of %zu bytes at byte %zd of the %zu bytes of dynamic shared memory",
               use == Use::READ ? "read" : "write", bytes, (ssize_t)(a - base), dynamic_bytes);
    return true;
}

void shared_barrier() {}

void shared_warp_sync(Fiber *, unsigned) {}

} // namespace cusim
