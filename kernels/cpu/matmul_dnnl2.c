// Makes a oneDNN primitive with the C API of version 2 (in Debian 12, Ubuntu 22.04 and 24.04).
//
// Here a memory description is a struct that the caller owns, and an operation is described by a
// struct of its own before the primitive description. matmul_dnnl3.c does the same for version 3.
#include "kernels/cpu/matmul_dnnl.h"

static dnnl_memory_desc_t describe(const struct DnnlMatrix *m) {
    dnnl_memory_desc_t d;
    DNNL_CHECK(dnnl_memory_desc_init_by_strides(&d, 2, m->size, m->type, m->stride));
    return d;
}

static dnnl_primitive_attr_t make_attributes(bool accumulate) {
    dnnl_primitive_attr_t attr;
    DNNL_CHECK(dnnl_primitive_attr_create(&attr));
    DNNL_CHECK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    dnnl_post_ops_t after;
    DNNL_CHECK(dnnl_post_ops_create(&after));
    if (accumulate)
        DNNL_CHECK(dnnl_post_ops_append_sum(after, 1.0f));
    DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attr, after));
    DNNL_CHECK(dnnl_post_ops_destroy(after));
    return attr;
}

bool dnnl_primitive_make(struct DnnlProduct *p, dnnl_engine_t engine, const struct DnnlMatrix *a,
                         const struct DnnlMatrix *b, const struct DnnlMatrix *bias,
                         const struct DnnlMatrix *c, bool accumulate, size_t *work_bytes) {
    const struct DnnlMatrix *const parts[] = {
        [DNNL_A] = a, [DNNL_B] = b, [DNNL_BIAS] = bias, [DNNL_C] = c};
    dnnl_memory_desc_t d[DNNL_NARG];
    for (int i = 0; i < DNNL_WORK; i++)
        if (parts[i])
            d[i] = describe(parts[i]);
    dnnl_matmul_desc_t op;
    DNNL_CHECK(dnnl_matmul_desc_init(&op, &d[DNNL_A], &d[DNNL_B], bias ? &d[DNNL_BIAS] : NULL,
                                     &d[DNNL_C]));
    dnnl_primitive_attr_t attr = make_attributes(accumulate);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = dnnl_primitive_desc_create(&pd, &op, attr, engine, NULL);
    DNNL_CHECK(dnnl_primitive_attr_destroy(attr));
    if (status == dnnl_unimplemented)
        return false;
    DNNL_CHECK(status);
    DNNL_CHECK(dnnl_primitive_create(&p->primitive, pd));
    d[DNNL_WORK] = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    for (int i = 0; i < DNNL_NARG; i++)
        if (i == DNNL_WORK || parts[i])
            DNNL_CHECK(dnnl_memory_create(&p->memory[i], &d[i], engine, DNNL_MEMORY_NONE));
    DNNL_CHECK(dnnl_primitive_desc_destroy(pd));
    *work_bytes = dnnl_memory_desc_get_size(&d[DNNL_WORK]);
    return true;
}
