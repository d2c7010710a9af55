// What the tests of the NVMe tier share: files, and a copy in memory of what they should hold.
//
// They lie in a folder beside the program, since /tmp may be in memory.
#ifndef TESTS_LIB_NVME_STORE_H
#define TESTS_LIB_NVME_STORE_H
#include "zero/offload/nvme.h"
#include "tests/lib/scratch.h"

// A file ends within a unit of the disk.
enum { FILE_BYTES = (1 << 20) + 100, UNIT = 4096, SIZES = 8193 };

// Files, and what they should hold.
struct Store {
    char *folder;
    struct NvmeSettings settings;
    struct Nvme *nvme;
    char *mirror[NTAG]; // NULL: no such file
    char *memory;       // for pieces, FILE_BYTES and some more at 4 KiB
    uint64_t random;
};

static inline uint64_t draw(struct Store *s, uint64_t below) {
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (s->random >> 33) % below;
}

static inline void fill(struct Store *s, char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        p[i] = (char)draw(s, 256);
}

static inline char *folder_of_this_program(void) {
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    *strrchr(path, '/') = 0;
    return scratch_make_in(path);
}

static const uint64_t two_files[NTAG] = {[TAG_PARAM] = FILE_BYTES, [TAG_OPTIMIZER] = FILE_BYTES};

static inline struct Store store_open(struct NvmeSettings settings) {
    struct Store s = {.folder = folder_of_this_program(), .settings = settings, .random = 1};
    s.settings.folder = s.folder;
    struct Error e;
    assert_ok(nvme_open(&s.nvme, &s.settings, 3, two_files, &e), &e);
    for (int tag = 0; tag < NTAG; tag++)
        if (two_files[tag])
            s.mirror[tag] = base_alloc_zeroed(FILE_BYTES);
    s.memory = aligned_alloc(UNIT, 2 << 20);
    assert_non_null(s.memory);
    return s;
}

static inline void store_close(struct Store *s) {
    nvme_close(s->nvme);
    for (int tag = 0; tag < NTAG; tag++)
        free(s->mirror[tag]);
    free(s->memory);
    assert_int_equal(scratch_count_files(s->folder), 0);
    scratch_remove(s->folder);
}

static inline int store_put(struct Store *s, enum Tag tag, uint64_t offset, size_t bytes,
                            size_t shift, struct Error *e) {
    struct NvmePiece piece = {tag, offset, s->memory + shift, bytes};
    fill(s, piece.mem, bytes);
    memcpy(s->mirror[tag] + offset, piece.mem, bytes);
    return nvme_write(s->nvme, &piece, 1, e);
}

static inline int store_get(struct Store *s, enum Tag tag, uint64_t offset, size_t bytes,
                            size_t shift, struct Error *e) {
    memset(s->memory, 0x55, shift + bytes + 64);
    int code = nvme_read(s->nvme, &(struct NvmePiece){tag, offset, s->memory + shift, bytes}, 1, e);
    if (code)
        return code;
    if (memcmp(s->memory + shift, s->mirror[tag] + offset, bytes) != 0)
        fail_msg("%zu bytes at %llu came back otherwise", bytes, (unsigned long long)offset);
    for (size_t i = 0; i < shift; i++)
        assert_int_equal(s->memory[i], 0x55);
    for (size_t i = 0; i < 64; i++)
        assert_int_equal(s->memory[shift + bytes + i], 0x55);
    return 0;
}

static inline void store_compare(struct Store *s) {
    struct Error e;
    for (int tag = 0; tag < NTAG; tag++)
        if (s->mirror[tag])
            assert_ok(store_get(s, (enum Tag)tag, 0, FILE_BYTES, 0, &e), &e);
}

#endif
