// Replaces matmul_dnnl.c if oneDNN was not found: there is no library, and all products use the
// blocked loops. matmul.c asks for the name before it calls anything else.
#include "kernels/cpu/matmul.h"

static const char MISSING[] = "this build has no oneDNN (install libdnnl-dev and build again)";

const char *dnnl_library_name(void) {
    return NULL;
}

struct DnnlEngine *dnnl_engine_open(void) {
    CHECK(false, "%s", MISSING);
}

void dnnl_engine_close(struct DnnlEngine *engine) {
    CHECK(!engine, "%s", MISSING);
}

struct DnnlProduct *dnnl_product_open(struct DnnlEngine *engine, const struct ProductKey *key,
                                      size_t *work_bytes) {
    (void)engine, (void)key, (void)work_bytes;
    CHECK(false, "%s", MISSING);
}

void dnnl_product_run(struct DnnlProduct *product, const struct ProductData *data) {
    (void)product, (void)data;
    CHECK(false, "%s", MISSING);
}

void dnnl_product_close(struct DnnlProduct *product) {
    CHECK(!product, "%s", MISSING);
}
