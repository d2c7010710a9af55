// A model file of llm.c that is laid out by hand, for the tests of data/llmc/: its header, where
// each parameter lies, the value of each element; and a folder to write it into.
#ifndef TESTS_LIB_LLMC_BY_HAND_H
#define TESTS_LIB_LLMC_BY_HAND_H
#include "data/llmc/kind.h"
#include "tests/lib/scratch.h"

#include <sys/stat.h>

// 2 layers, 2 heads, 4 channels, 3 positions, 5 ids, padded to 7 rows. The numbers of `tensors` are
// counted on paper from llm.c's list of tensors, in elements behind the header.

enum { L = 2, C = 4, T = 3, V = 5, VP = 7, ELEMENTS = 536, PAD = (128 - VP) * C };
static const int32_t header[256] = {20240326, 3, T, V, L, 2, C, VP};

static const struct {
    const char *param;
    int layers; // 0: it is in none
    size_t begin, count;
} tensors[] = {{"wte", 0, 0, 20},
               {"wpe", 0, 28, 12},
               {"norm1.weight", L, 40, 4},
               {"norm1.bias", L, 48, 4},
               {"attention.qkv.weight", L, 56, 48},
               {"attention.qkv.bias", L, 152, 12},
               {"attention.proj.weight", L, 176, 16},
               {"attention.proj.bias", L, 208, 4},
               {"norm2.weight", L, 216, 4},
               {"norm2.bias", L, 224, 4},
               {"mlp.fc.weight", L, 232, 64},
               {"mlp.fc.bias", L, 360, 16},
               {"mlp.out.weight", L, 392, 64},
               {"mlp.out.bias", L, 520, 4},
               {"norm.weight", 0, 528, 4},
               {"norm.bias", 0, 532, 4}};
enum { NTENSOR = sizeof tensors / sizeof tensors[0] };

static const char model_flags[] =
    "{\"family\":\"gpt2\",\"layers\":2,\"heads\":2,\"kv-heads\":2,\"head-size\":2,\"channels\":4,"
    "\"ffn\":16,\"vocab\":5,\"positions\":3,\"seq-len\":3,\"norm-eps\":1e-05,\"tie\":\"on\"}";

// Element i of the file; bf16 has them all.
static inline float value(size_t i) {
    return (float)(i * 7 % 251) * (i < 251 ? 1.0f : i < 502 ? -1.0f : 2.0f);
}

static char *folder, *path, *aside; // aside: where PATH is written before it has its name

static inline int set_up(void **state) {
    (void)state;
    folder = scratch_make();
    path = base_format("%s/m.bin", folder);
    aside = base_format("%s/m.bin.writing", folder);
    return 0;
}

static inline int tear_down(void **state) {
    (void)state;
    free(path);
    free(aside);
    scratch_remove(folder);
    return 0;
}

// The file, with other bytes in its header, and `more` bytes more.
static inline void write_by_hand(const int32_t head[256], bool bf16, long more) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(head, 4, 256, f), 256);
    for (size_t i = 0; i < ELEMENTS; i++) {
        float x = value(i);
        const char *bytes = (const char *)&x;
        assert_int_equal(fwrite(bf16 ? bytes + 2 : bytes, bf16 ? 2 : 4, 1, f), 1);
    }
    long end = ftell(f) + more;
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), end), 0);
    assert_int_equal(fclose(f), 0);
}

static inline void write_version(int32_t version) {
    int32_t head[256];
    memcpy(head, header, sizeof head);
    head[1] = version;
    write_by_hand(head, version == 5, 0);
}

static inline bool is_there(const char *name) {
    struct stat st;
    return lstat(name, &st) == 0;
}

// Calls `each` for every parameter and layer.
typedef void Each(void *context, int layer, const char *param, size_t begin, size_t count);
static inline void for_all(Each *each, void *context) {
    for (int i = 0; i < NTENSOR; i++)
        for (int l = 0; l < (tensors[i].layers ? L : 1); l++)
            each(context, tensors[i].layers ? l : -1, tensors[i].param,
                 tensors[i].begin + (size_t)l * tensors[i].count, tensors[i].count);
}

#endif
