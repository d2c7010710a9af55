// Fuzzes the reader of checkpoints: any bytes are refused with a line, or are a file whose sizes
// add up. Built and run by scripts/dev/fuzz.sh.
#include "zero/checkpoint/checkpoint.h"

#include "kernels/hash.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); // libFuzzer's own

// What a loader does with a head that was accepted: it reads every array.
static void read_arrays(int fd, const char *path, const struct CheckpointHead *head) {
    struct Error e = {0};
    CHECK(strlen(head->identity) <= 1 << 20, "an identity of %zu bytes", strlen(head->identity));
    for (uint32_t g = 0; g < head->ngroup; g++) {
        size_t bytes = (size_t)(head->group[g].count * head->group[g].narray) * sizeof(float);
        char *arrays = base_alloc(bytes);
        CHECK(checkpoint_file_read(fd, path, arrays, bytes, &e) == 0, "%s", e.text);
        free(arrays);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int fd = memfd_create("state", MFD_CLOEXEC);
    CHECK(fd >= 0 && write(fd, data, size) == (ssize_t)size, "memfd");
    char *path = base_format("/proc/self/fd/%d", fd);
    struct CheckpointHead head;
    struct Error e = {0};
    int opened, err = checkpoint_file_check(AT_FDCWD, path, &e);
    CHECK(!err || e.text[0], "a refusal without a word");
    e.text[0] = 0;
    err = checkpoint_file_open(AT_FDCWD, path, &opened, &head, &e); // whatever its hash is
    if (err) {
        CHECK(e.text[0] && opened < 0 && !head.group, "a refusal without a word, or half open");
    } else {
        read_arrays(opened, path, &head);
        checkpoint_head_free(&head);
        close(opened);
    }
    close(fd);
    free(path);
    return 0;
}

enum { GOOD_HEAD = 112 };

// The magic, the step, rank 0 of 1, one group, no identity; updates, hysteresis, good steps, and
// the loss scale; the grid; then the group's elements, begin, count.
static size_t good_head(uint8_t *data, uint64_t count, bool late) {
    const uint32_t numbers[] = {0, 1, 1, 0}, grid[] = {1, 1, 1, 1};
    const uint64_t step = 7, counts[] = {6, 2, 5}, group[] = {count + 3, 2, count};
    const float scale[] = {1024, 0};
    memcpy(data, late ? "zero.c state 6\n" : "zero.c state 5\n", 16);
    memcpy(data + 16, &step, 8);
    memcpy(data + 24, numbers, 16);
    memcpy(data + 40, counts, 24);
    memcpy(data + 64, scale, 8);
    memcpy(data + 72, grid, 16);
    memcpy(data + 88, group, 24);
    return GOOD_HEAD;
}

// No blind mutation would find a hash. So most inputs get a right one, and many a good head, of
// which some bytes are then changed.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed) {
    enum { ROOM = 256 };
    size = LLVMFuzzerMutate(data, size, room);
    if (room < ROOM || seed % 4 == 0)
        return size;
    if (seed % 4 != 1) {
        uint64_t count = seed / 4 % 8;
        bool late = seed / 8192 % 2; // a fourth array
        size = good_head(data, count, late) + count * (late ? 16 : 12) + sizeof(uint64_t);
        for (unsigned i = 0; i < seed % 3; i++) // 0, 1 or 2 bytes
            data[16 + (seed / 32 + i * 11) % (GOOD_HEAD - 16)] ^= (uint8_t)(1u << seed / 512 % 8);
    }
    if (size > sizeof(uint64_t)) {
        struct Hash64 hash;
        hash64_init(&hash, 0);
        hash64_update(&hash, data, size - sizeof(uint64_t));
        uint64_t sum = hash64_final(&hash);
        memcpy(data + size - sizeof sum, &sum, sizeof sum);
    }
    return size;
}
