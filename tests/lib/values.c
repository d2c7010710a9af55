// Reads values files. See values.h.
#include "tests/lib/values.h"
#include "kernels/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum Type { TYPE_F32, TYPE_I32, TYPE_U16 };

// What lies in the file before an array's elements.
struct Head {
    char name[40];
    uint32_t type, ndim, dim[4];
};
_Static_assert(sizeof(struct Head) == 64, "the format's header has 64 bytes");

struct Values {
    char *path;
    size_t bytes;
    char *data;
};

struct Values *values_open(const char *path) {
    FILE *f = fopen(path, "rb");
    CHECK(f, "cannot open %s (run from the root of the repository)", path);
    struct Values *v = base_alloc_zeroed(sizeof *v);
    v->path = base_format("%s", path);
    fseek(f, 0, SEEK_END);
    v->bytes = (size_t)ftell(f);
    rewind(f);
    v->data = base_alloc(v->bytes);
    CHECK(fread(v->data, 1, v->bytes, f) == v->bytes, "cannot read %s", path);
    fclose(f);
    CHECK(v->bytes >= 8 && memcmp(v->data, "ZVALUES1", 8) == 0, "%s is no values file", path);
    return v;
}

void values_close(struct Values *v) {
    free(v->data);
    free(v->path);
    free(v);
}

static size_t count(const struct Head *h) {
    return (size_t)h->dim[0] * h->dim[1] * h->dim[2] * h->dim[3];
}

// The head of array `name`, or NULL.
static const struct Head *find(const struct Values *v, const char *name) {
    for (size_t at = 8; at + sizeof(struct Head) <= v->bytes;) {
        const struct Head *h = (const struct Head *)(v->data + at);
        size_t size_bytes = count(h) * (h->type == TYPE_U16 ? 2 : 4);
        CHECK(at + sizeof *h + size_bytes <= v->bytes, "%s ends inside %.40s", v->path, h->name);
        if (strncmp(h->name, name, sizeof h->name) == 0)
            return h;
        at += sizeof *h + round_up(size_bytes, 8);
    }
    return NULL;
}

static const void *elements(const struct Values *v, const char *name, enum Type type, size_t n) {
    const struct Head *h = find(v, name);
    CHECK(h, "%s has no array %s", v->path, name);
    CHECK(h->type == type, "%s: %s has type %u, not %d", v->path, name, h->type, type);
    CHECK(count(h) == n, "%s: %s has %zu elements, not %zu", v->path, name, count(h), n);
    return h + 1;
}

const float *values_f32(const struct Values *v, const char *name, size_t n) {
    return elements(v, name, TYPE_F32, n);
}

const int32_t *values_i32(const struct Values *v, const char *name, size_t n) {
    return elements(v, name, TYPE_I32, n);
}

const uint16_t *values_u16(const struct Values *v, const char *name, size_t n) {
    return elements(v, name, TYPE_U16, n);
}

size_t values_count(const struct Values *v, const char *name) {
    const struct Head *h = find(v, name);
    return h ? count(h) : 0;
}
