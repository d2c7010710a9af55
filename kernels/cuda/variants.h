// Variants: kernels for some GPUs alone, beside the generic ones that every GPU runs.
//
// A variant is an operation of the kernel table made for one compute capability, such as attention
// with the matrix instructions of 9.0. Its file is compiled for that one target (sm_90a), where the
// Makefile's CUDA_ARCHS names it (CU_90a there lists such files); else it is not part of the build.
// The file ends in its rows:
//
//     extern "C" const struct Variant cuda_variants_<file>[] = {{.name = ...}, {}};
//
// When a device is opened, each operation gets the list of the rows that are for this GPU, with
// the generic kernel as the last. A launch takes the first row that takes its arguments.
//
// Another variant is another order of sums, so other bits. A checkpoint has the names of a device's
// variants, and which of them ran (device_get_choices); a run that resumes chooses among the same
// (device_set_variants), and ends with a line where one that ran is not to be had.
//
// Called by table.c, matmul.c, device.c and blas_choices.c. A variant lives with the scratch that
// the generic kernel asks for: memory is planned without a GPU.
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
    const char *name; // shorter than VARIANT_NAME; says the target, as checkpoints keep it
    enum CudaOp op;
    int capability;                  // of the GPUs that it is for: 90 for 9.0
    bool (*takes)(const void *args); // the operation's struct; NULL: any
    void (*launch)(struct Stream *s, const void *args);
};

// Of one device. A list of row[] ends with the generic kernel.
struct Variants {
    int capability;
    const struct Variant *row[NCUDA_OP][MAX_VARIANTS + 1];
    bool ran[NCUDA_OP][MAX_VARIANTS];
};

extern const struct Variant cuda_generic[NCUDA_OP]; // table.c

// The generic kernels, then what this build has for a GPU of that capability.
void variants_open(struct Variants *v, int capability);
// Puts those of more rows that are for this GPU before what there is. Before the first launch.
void variants_add(struct Variants *v, const struct Variant *rows);
// From now on the generic kernels alone: for a comparison, or to go around a fault. A checkpoint
// that another variant was used for is refused then.
void variants_forbid(struct Variants *v);

// Queues an operation by the row that takes its arguments.
void variants_launch(struct Stream *s, enum CudaOp op, const void *args);

// As bytes: writes them to out (NULL: nothing is written) and returns how many; 0 for no variant.
size_t variants_save(const struct Variants *v, void *out);
// How many of these bytes, written by device_get_choices, say variants.
size_t variants_saved_bytes(const void *in, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
