// The interface between matmul_dnnl.c, which uses oneDNN, and the one function that is written
// differently for versions 2 and 3 (matmul_dnnl2.c, matmul_dnnl3.c; the Makefile takes the one for
// the library found).
#ifndef KERNELS_CPU_MATMUL_DNNL_H
#define KERNELS_CPU_MATMUL_DNNL_H
#include "kernels/cpu/matmul.h"

#include <oneapi/dnnl/dnnl.h>

// Encloses every oneDNN call: one fails if memory is out, or for arguments that this program should
// not have passed.
#define DNNL_CHECK(call)                                                                           \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ == dnnl_out_of_memory)                                                         \
            base_out_of_memory(0, "oneDNN");                                                       \
        CHECK(status_ == dnnl_success, "oneDNN returned status %d", (int)status_);                 \
    } while (0)

// A matrix for oneDNN: rows, columns, and the distances in elements between rows and between
// columns.
struct DnnlMatrix {
    dnnl_dims_t size, stride;
    dnnl_data_type_t type;
};

// A prepared product: the primitive, and a memory object for each argument; their data pointers are
// set at each run.
enum { DNNL_A, DNNL_B, DNNL_BIAS, DNNL_C, DNNL_WORK, DNNL_NARG };
struct DnnlProduct {
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[DNNL_NARG]; // DNNL_BIAS: NULL if there is none
    dnnl_stream_t stream;            // the engine's
};

// Fills primitive and memory of `p` for C = A · B (+ bias) (+ C), with *work_bytes of scratch that
// the caller provides. bias is NULL for none. False, with nothing filled, if oneDNN has no such
// product on this CPU; any other failure is fatal.
bool dnnl_primitive_make(struct DnnlProduct *p, dnnl_engine_t engine, const struct DnnlMatrix *a,
                         const struct DnnlMatrix *b, const struct DnnlMatrix *bias,
                         const struct DnnlMatrix *c, bool accumulate, size_t *work_bytes);

#endif
