// Checks that every operand of every kernel is in its device's memory: see tier_check.h.
#include "kernels/tier_check.h"

#include "kernels/access.h"

#include <stdlib.h>

// A block of host memory.
struct FarBlock {
    const char *mem;
    size_t bytes;
    const char *tier;
    char *purpose;
    struct FarBlock *next;
};

void tier_check_add(struct Device *d, const void *mem, size_t bytes, const char *tier,
                    const char *purpose) {
    struct FarBlock *far = base_alloc(sizeof *far);
    *far = (struct FarBlock){mem, bytes, tier, base_format("%s", purpose), d->far_blocks};
    d->far_blocks = far;
}

void tier_check_remove(struct Device *d, const void *mem) {
    struct FarBlock **at = &d->far_blocks, *far;
    while ((far = *at) && far->mem != mem)
        at = &far->next;
    CHECK(far, "a block at %p that was never taken", mem);
    *at = far->next;
    free(far->purpose);
    free(far);
}

void tier_check_launch(const struct Device *d, const char *op, const void *args) {
    static const char *const does[] = {
        [ACCESS_READ] = "reads", [ACCESS_WRITE] = "writes", [ACCESS_BOTH] = "changes"};
    struct Accesses all = access_of(op, args);
    for (const struct Access *a = all.list; a < all.list + all.n; a++)
        for (const struct FarBlock *far = d->far_blocks; far; far = far->next) {
            size_t at = (size_t)((uintptr_t)a->mem - (uintptr_t)far->mem);
            CHECK(at >= far->bytes,
                  "kernel %s of device %s %s tier %s (%s, byte %zu of %zu): expected the device's "
                  "own memory, to which it is to be copied first",
                  op, d->name, does[a->how], far->tier, far->purpose, at, far->bytes);
        }
}
