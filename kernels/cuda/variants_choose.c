// Chooses the kernel that a GPU runs, if there are several: see variants.h.
//
// Also device_set_variants, declared in kernels/device.h.
#include "kernels/cuda/variants.h"

#include "kernels/cuda/cuda.h"

#include <errno.h>
#include <string.h>

// The Makefile lists the files of variants in this build: CUDA_VARIANTS is X(file) X(file) ...
#define X(file) extern const struct Variant cuda_variants_##file[];
CUDA_VARIANTS
#undef X

static const struct Variant *const built[] = {
#define X(file) cuda_variants_##file,
    CUDA_VARIANTS
#undef X
        NULL};

// ---- the available ones ----

static int count_rows(const struct Variants *v, enum CudaOp op) {
    int n = 0;
    while (v->row[op][n] != &cuda_generic[op])
        n++;
    return n;
}

void variants_forbid(struct Variants *v) {
    for (int op = 0; op < NCUDA_OP; op++)
        v->row[op][0] = &cuda_generic[op];
}

static void insert_first(struct Variants *v, const struct Variant *row, bool ran) {
    const struct Variant **list = v->row[row->op];
    int n = count_rows(v, row->op);
    CHECK(n < MAX_VARIANTS && strlen(row->name) < VARIANT_NAME, "variant %s", row->name);
    memmove(list + 1, list, (size_t)(n + 1) * sizeof *list);
    memmove(v->ran[row->op] + 1, v->ran[row->op], (size_t)n * sizeof(bool));
    list[0] = row;
    v->ran[row->op][0] = ran;
}

void variants_add(struct Variants *v, const struct Variant *rows) {
    for (; rows->name; rows++)
        if (rows->capability == v->capability)
            insert_first(v, rows, false);
}

void variants_open(struct Variants *v, int capability) {
    v->capability = capability;
    variants_forbid(v);
    for (size_t i = 0; built[i]; i++)
        variants_add(v, built[i]);
}

// ---- launching ----

void variants_launch(struct Stream *s, enum CudaOp op, const void *args) {
    struct Variants *v = &s->cuda->variants;
    int i = 0;
    while (v->row[op][i]->takes && !v->row[op][i]->takes(args))
        i++;
    if (v->row[op][i] != &cuda_generic[op])
        v->ran[op][i] = true;
    v->row[op][i]->launch(s, args);
}

// ---- in checkpoints ----

static const char VARIANTS_MAGIC[8] = "zerovar1";

struct SavedHead {
    char magic[8];
    uint64_t count;
};
struct SavedVariant {
    char name[VARIANT_NAME];
    uint64_t ran;
};

size_t variants_save(const struct Variants *v, void *out) {
    struct SavedHead head = {.count = 0};
    memcpy(head.magic, VARIANTS_MAGIC, sizeof head.magic);
    for (enum CudaOp op = 0; op < NCUDA_OP; op++)
        for (int i = 0, n = count_rows(v, op); i < n; i++, head.count++)
            if (out) {
                struct SavedVariant saved = {.ran = v->ran[op][i]};
                memcpy(saved.name, v->row[op][i]->name, strlen(v->row[op][i]->name));
                memcpy((char *)out + sizeof head + head.count * sizeof saved, &saved, sizeof saved);
            }
    if (out && head.count)
        memcpy(out, &head, sizeof head);
    return head.count ? sizeof head + head.count * sizeof(struct SavedVariant) : 0;
}

static bool read_head(struct SavedHead *head, const void *in, size_t bytes) {
    if (bytes < sizeof *head || memcmp(in, VARIANTS_MAGIC, sizeof VARIANTS_MAGIC) != 0)
        return false;
    memcpy(head, in, sizeof *head);
    return head->count <= (bytes - sizeof *head) / sizeof(struct SavedVariant);
}

size_t variants_saved_bytes(const void *in, size_t bytes) {
    struct SavedHead head;
    return read_head(&head, in, bytes) ? sizeof head + head.count * sizeof(struct SavedVariant) : 0;
}

static const struct Variant *find_variant(const struct Variants *v, const char *name) {
    for (int op = 0; op < NCUDA_OP; op++)
        for (int i = 0; v->row[op][i] != &cuda_generic[op]; i++)
            if (strcmp(v->row[op][i]->name, name) == 0)
                return v->row[op][i];
    return NULL;
}

static int refuse_missing_variant(const struct Variants *v, const char *name, struct Error *e) {
    return error_set(
        e, -ENOTSUP, E_KERNEL_VARIANT,
        "the checkpoint was computed with the kernel %s, which a GPU of compute "
        "capability %d.%d lacks in this build (CUDA_ARCHS=\"%s\"): resume on a GPU like "
        "the one that wrote it, with a build for it, or begin a new run",
        name, v->capability / 10, v->capability % 10, CUDA_ARCHS);
}

// A saved variant that never ran may be missing. Bytes that begin with no variants have none: if
// they are damaged, device_set_choices says so where it is called.
int device_set_variants(struct Device *d, const void *in, size_t bytes, struct Error *e) {
    struct Cuda *cuda = (struct Cuda *)d;
    struct SavedHead head;
    struct Variants chosen;
    if (d->kernels != &cuda_kernels)
        return 0;
    struct Variants *v = &cuda->variants;
    chosen = (struct Variants){.capability = v->capability};
    variants_forbid(&chosen);
    size_t count = read_head(&head, in, bytes) ? head.count : 0;
    for (size_t i = count; i-- > 0;) { // the last one first, since each is put in front
        struct SavedVariant saved;
        memcpy(&saved, (const char *)in + sizeof head + i * sizeof saved, sizeof saved);
        saved.name[VARIANT_NAME - 1] = '\0';
        const struct Variant *row = find_variant(v, saved.name);
        if (!row && saved.ran)
            return refuse_missing_variant(v, saved.name, e);
        if (row)
            insert_first(&chosen, row, saved.ran);
    }
    *v = chosen;
    return 0;
}
