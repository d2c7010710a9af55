// Variants: kernels for some GPUs only, beside the generic ones that every GPU runs.
//
// A variant is an operation of the kernel table made for one compute capability, such as attention
// with the matrix instructions of 9.0. Its file is compiled only for that target (sm_90a), if the
// Makefile's CUDA_ARCHS names it (CU_90a there lists such files); else it is not in the build. The
// file ends in its rows:
//
//     extern "C" const struct Variant cuda_variants_<file>[] = {{.name = ...}, {}};
//
// When a device is opened, each operation gets the list of the rows for this GPU, with the generic
// kernel as the last. A launch uses the first row that accepts its arguments.
//
// Another variant sums in another order, so has other bits. A checkpoint has the names of a
// device's variants, and which of them ran (device_get_choices); a resumed run chooses among the
// same ones (device_set_variants), and ends with a line if one that ran is missing.
//
// Called by table.c, matmul.c, device.c and blas_choices.c. A variant must use only the scratch of
// the generic kernel: memory is planned without a GPU.
#ifndef KERNELS_CUDA_VARIANTS_H
#define KERNELS_CUDA_VARIANTS_H
#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum CudaOp {
#define X(op, Args) CUDA_OP_##op,
    KERNEL_LIST(X)
#undef X
        NCUDA_OP
};

enum { VARIANT_NAME = 56, MAX_VARIANTS = 4 }; // bytes of a name; of one operation

// A list of rows ends with one that has no name.
struct Variant {
    const char *name; // shorter than VARIANT_NAME; names the target, as checkpoints keep it
    enum CudaOp op;
    int capability;                  // of its GPUs: 90 for 9.0
    bool (*takes)(const void *args); // the operation's struct; NULL: any
    void (*launch)(struct Stream *s, const void *args);
};

// The variants of one device. A list row[] ends with the generic kernel.
struct Variants {
    int capability;
    const struct Variant *row[NCUDA_OP][MAX_VARIANTS + 1];
    bool ran[NCUDA_OP][MAX_VARIANTS];
};

extern const struct Variant cuda_generic[NCUDA_OP]; // table.c

// Sets the generic kernels, then this build's variants for a GPU of that capability.
void variants_open(struct Variants *v, int capability);
// Puts rows for this GPU in front of the existing ones. Before the first launch.
void variants_add(struct Variants *v, const struct Variant *rows);
// Leaves only the generic kernels: for a comparison, or to avoid a bug. From then on a checkpoint
// that used another variant is refused.
void variants_forbid(struct Variants *v);

// Queues an operation by the first row that accepts its arguments.
void variants_launch(struct Stream *s, enum CudaOp op, const void *args);

// Saves them as bytes to `out` (NULL: writes nothing). Returns their number; 0 for no variant.
size_t variants_save(const struct Variants *v, void *out);
// Returns how many of these bytes, written by device_get_choices, are for variants.
size_t variants_saved_bytes(const void *in, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
