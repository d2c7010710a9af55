// Where compiled code tells of its accesses.
//
// Kernels and the host's side of CUDA are compiled with clang's -fsanitize=thread, which puts a
// call before every load and store. Those calls belong to ThreadSanitizer, which is not linked:
// they end here; those of kernels as cusim_..., with the alignment that the access promises
// (kernels.awk). memcpy and its like, which the compiler leaves alone, are wrapped by the linker,
// and so is read, by which a checkpoint comes into pinned memory.
#include "tests/cusim/block.h"

#include <string.h>
#include <sys/types.h>

using namespace cusim;

static __attribute__((noinline)) void seen_and_counted(uintptr_t a, size_t bytes, Use use,
                                                       const void *caller) {
    bool global = a - arena_begin < arena_end - arena_begin;
    if (global)
        access(reinterpret_cast<void *>(a), bytes, use, caller);
    else if (is_shared(a))
        shared_access(a, bytes, use, caller);
    else
        return;
    count_access(a, bytes, use, !global, true, caller);
}

static inline void seen(const void *p, size_t bytes, Use use, const void *caller) {
    uintptr_t a = reinterpret_cast<uintptr_t>(p);
    if (__builtin_expect(counting, false)) // apart, so that nothing else is slower
        return seen_and_counted(a, bytes, use, caller);
    if (a - arena_begin < arena_end - arena_begin)
        access(p, bytes, use, caller);
    else if (is_shared(a) && in_kernel())
        shared_access(a, bytes, use, caller);
}

#define CALLER __builtin_return_address(0)
#define HOOKS(n)                                                                                   \
    void __tsan_read##n(void *p) {                                                                 \
        seen(p, n, Use::READ, CALLER);                                                             \
    }                                                                                              \
    void __tsan_write##n(void *p) {                                                                \
        seen(p, n, Use::WRITE, CALLER);                                                            \
    }                                                                                              \
    void __tsan_read_write##n(void *p) {                                                           \
        seen(p, n, Use::READ, CALLER);                                                             \
        seen(p, n, Use::WRITE, CALLER);                                                            \
    }                                                                                              \
    void __tsan_unaligned_read##n(void *p) {                                                       \
        seen(p, n, Use::READ, CALLER);                                                             \
    }                                                                                              \
    void __tsan_unaligned_write##n(void *p) {                                                      \
        seen(p, n, Use::WRITE, CALLER);                                                            \
    }                                                                                              \
    void __tsan_unaligned_read_write##n(void *p) {                                                 \
        seen(p, n, Use::READ, CALLER);                                                             \
        seen(p, n, Use::WRITE, CALLER);                                                            \
    }

Bits cusim::load(const void *p, size_t bytes) {
    Bits bits = 0;
    check_aligned(p, bytes, CALLER);
    seen(p, bytes, Use::READ, CALLER);
    __real_memcpy(&bits, p, bytes);
    return bits;
}

void cusim::store(void *p, Bits bits, size_t bytes) {
    check_aligned(p, bytes, CALLER);
    seen(p, bytes, Use::WRITE, CALLER);
    __real_memcpy(p, &bits, bytes);
}

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_init(void) {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
void __tsan_read_range(void *p, size_t n) {
    seen(p, n, Use::READ, CALLER);
}
void __tsan_write_range(void *p, size_t n) {
    seen(p, n, Use::WRITE, CALLER);
}

ssize_t __real_read(int, void *, size_t);
ssize_t __wrap_read(int file, void *to, size_t n) {
    ssize_t got = __real_read(file, to, n);
    if (got > 0)
        seen(to, (size_t)got, Use::WRITE, CALLER);
    return got;
}

ssize_t __real_pread(int, void *, size_t, off_t);
ssize_t __wrap_pread(int file, void *to, size_t n, off_t at) {
    ssize_t got = __real_pread(file, to, n, at);
    if (got > 0)
        seen(to, (size_t)got, Use::WRITE, CALLER);
    return got;
}

void cusim_read(uint32_t n, uint32_t alignment, void *p) {
    check_aligned(p, alignment, CALLER);
    seen(p, n, Use::READ, CALLER);
}
void cusim_write(uint32_t n, uint32_t alignment, void *p) {
    check_aligned(p, alignment, CALLER);
    seen(p, n, Use::WRITE, CALLER);
}
void cusim_read_write(uint32_t n, uint32_t alignment, void *p) {
    check_aligned(p, alignment, CALLER);
    seen(p, n, Use::READ, CALLER);
    seen(p, n, Use::WRITE, CALLER);
}
void cusim_copy(void *to, const void *from, size_t n, uint32_t to_alignment,
                uint32_t from_alignment) {
    check_aligned(from, from_alignment, CALLER);
    check_aligned(to, to_alignment, CALLER);
    seen(from, n, Use::READ, CALLER);
    seen(to, n, Use::WRITE, CALLER);
    __real_memmove(to, from, n);
}
void cusim_set(void *to, char value, size_t n, uint32_t alignment) {
    check_aligned(to, alignment, CALLER);
    seen(to, n, Use::WRITE, CALLER);
    __real_memset(to, value, n);
}

void *__wrap_memcpy(void *to, const void *from, size_t n) {
    seen(from, n, Use::READ, CALLER);
    seen(to, n, Use::WRITE, CALLER);
    return __real_memcpy(to, from, n);
}
void *__wrap_memmove(void *to, const void *from, size_t n) {
    seen(from, n, Use::READ, CALLER);
    seen(to, n, Use::WRITE, CALLER);
    return __real_memmove(to, from, n);
}
void *__wrap_memset(void *to, int value, size_t n) {
    seen(to, n, Use::WRITE, CALLER);
    return __real_memset(to, value, n);
}
}
