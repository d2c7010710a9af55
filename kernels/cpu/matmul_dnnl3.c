// Makes a oneDNN primitive with the C API of version 3 (Debian 13 has 3.7).
//
// A memory description is an object behind a pointer, made and destroyed, and a primitive
// description is made in one call. matmul_dnnl2.c does the same for version 2.
#include "kernels/cpu/matmul_dnnl.h"

static dnnl_memory_desc_t describe(const struct DnnlMatrix *m) {
    dnnl_memory_desc_t d;
    DNNL_CHECK(dnnl_memory_desc_create_with_strides(&d, 2, m->size, m->type, m->stride));
    return d;
}

static dnnl_primitive_attr_t make_attributes(bool accumulate) {
    dnnl_primitive_attr_t attr;
    DNNL_CHECK(dnnl_primitive_attr_create(&attr));
    DNNL_CHECK(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    dnnl_post_ops_t after;
    DNNL_CHECK(dnnl_post_ops_create(&after));
    if (accumulate)
        DNNL_CHECK(dnnl_post_ops_append_sum(after, 1.0f, 0, dnnl_data_type_undef));
    DNNL_CHECK(dnnl_primitive_attr_set_post_ops(attr, after));
    DNNL_CHECK(dnnl_post_ops_destroy(after));
    return attr;
}

bool dnnl_primitive_make(struct DnnlProduct *p, dnnl_engine_t engine, const struct DnnlMatrix *a,
                         const struct DnnlMatrix *b, const struct DnnlMatrix *bias,
                         const struct DnnlMatrix *c, bool accumulate, size_t *work_bytes) {
    const struct DnnlMatrix *const parts[] = {
        [DNNL_A] = a, [DNNL_B] = b, [DNNL_BIAS] = bias, [DNNL_C] = c};
    dnnl_memory_desc_t d[DNNL_WORK] = {NULL};
    for (int i = 0; i < DNNL_WORK; i++)
        if (parts[i])
            d[i] = describe(parts[i]);
    dnnl_primitive_attr_t attr = make_attributes(accumulate);
    dnnl_primitive_desc_t pd;
    dnnl_status_t status = dnnl_matmul_primitive_desc_create(&pd, engine, d[DNNL_A], d[DNNL_B],
                                                             d[DNNL_BIAS], d[DNNL_C], attr);
    DNNL_CHECK(dnnl_primitive_attr_destroy(attr));
    bool has = status != dnnl_unimplemented;
    if (has) {
        DNNL_CHECK(status);
        DNNL_CHECK(dnnl_primitive_create(&p->primitive, pd));
        const_dnnl_memory_desc_t work =
            dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        *work_bytes = dnnl_memory_desc_get_size(work);
        DNNL_CHECK(dnnl_memory_create(&p->memory[DNNL_WORK], work, engine, DNNL_MEMORY_NONE));
        DNNL_CHECK(dnnl_primitive_desc_destroy(pd));
    }
    for (int i = 0; i < DNNL_WORK; i++) {
        if (has && parts[i])
            DNNL_CHECK(dnnl_memory_create(&p->memory[i], d[i], engine, DNNL_MEMORY_NONE));
        if (parts[i])
            DNNL_CHECK(dnnl_memory_desc_destroy(d[i]));
    }
    return has;
}
