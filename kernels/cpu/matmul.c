// The choice between the ways to multiply, and the cache of prepared oneDNN products.
//
// The rule: products use our own loops, except bf16 on a CPU with AVX512_BF16 under a table that
// does not use it; those go to oneDNN, if it is in the build. Without such units oneDNN would
// emulate them, at a tenth of the fp32 rate, while our loops widen bf16 as they pack and lose
// nothing; and for fp32 the loops are as fast as oneDNN at its best and do not slow down for the
// transposed products of the backward pass. fp16 always takes the loops: oneDNN 2 has no such
// product on a CPU, and oneDNN 3 only with AVX512_FP16 or AMX_FP16. Products that oneDNN does not
// offer on this CPU (bf16 without AVX-512) use the loops, too.
//
// oneDNN generates machine code for each shape, which takes milliseconds, so a product is prepared
// once, when its scratch is asked for, and kept. Queries come from the host thread while the
// compute queue runs products: a lock guards the list. Entries are never moved or removed while the
// device is open.
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/instructions.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct CacheEntry {
    struct ProductKey key;
    struct DnnlProduct *product;
    size_t work_bytes;
    struct CacheEntry *next;
};

struct MatmulCache {
    int threads;
    enum MatmulPath path[NDTYPE];
    pthread_mutex_t lock;
    struct DnnlEngine *engine; // opened with the first product
    struct CacheEntry *entries;
};

const char *matmul_backend_name(void) {
    return dnnl_library_name();
}

bool matmul_cpu_has_bf16(void) {
    return instructions_usable(INSTRUCTIONS_AVX512BF16);
}

// True if oneDNN has each kind of product of these operands; those of a kind differ only in sizes.
static bool dnnl_has(enum Dtype operands) {
    struct DnnlEngine *engine = dnnl_engine_open();
    bool all = true;
    for (int kind = 0; kind < 8 && all; kind++) {
        struct ProductKey key;
        memset(&key, 0, sizeof key); // padding too
        key.m = key.n = key.k = key.lda = key.ldb = key.ldc = 16;
        key.operands = operands;
        key.result = kind & 1 ? F32 : operands;
        key.accumulate = kind & 2;
        key.bias = kind & 4;
        size_t work_bytes;
        struct DnnlProduct *product = dnnl_product_open(engine, &key, &work_bytes);
        all = product != NULL;
        if (product)
            dnnl_product_close(product);
    }
    dnnl_engine_close(engine);
    return all;
}

bool matmul_dnnl_takes(enum Dtype operands) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool asked, takes[NDTYPE];
    pthread_mutex_lock(&lock);
    for (enum Dtype d = F32; dnnl_library_name() && !asked && d < F16; d++) // fp16: never
        takes[d] = dnnl_has(d);
    asked = true;
    bool answer = takes[operands];
    pthread_mutex_unlock(&lock);
    return answer;
}

static bool bf16_uses_dnnl(bool loops_dot_bf16) {
    return matmul_cpu_has_bf16() && !loops_dot_bf16 && matmul_dnnl_takes(BF16);
}

bool matmul_uses_bf16(bool loops_dot_bf16) {
    return loops_dot_bf16 || bf16_uses_dnnl(false);
}

struct MatmulCache *matmul_cache_open(int threads, bool loops_dot_bf16) {
    struct MatmulCache *cache = base_alloc_zeroed(sizeof *cache);
    cache->threads = threads;
    pthread_mutex_init(&cache->lock, NULL);
    if (bf16_uses_dnnl(loops_dot_bf16))
        cache->path[BF16] = MATMUL_DNNL;
    return cache;
}

void matmul_cache_close(struct MatmulCache *cache) {
    for (struct CacheEntry *e = cache->entries, *next; e; e = next) {
        next = e->next;
        dnnl_product_close(e->product);
        free(e);
    }
    if (cache->engine)
        dnnl_engine_close(cache->engine);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
}

enum MatmulPath matmul_cache_path(const struct MatmulCache *cache, enum Dtype operands) {
    return cache->path[operands];
}

void matmul_cache_force(struct MatmulCache *cache, enum Dtype operands, enum MatmulPath path) {
    CHECK(path == MATMUL_LOOPS || matmul_dnnl_takes(operands), "oneDNN has no product of %s here",
          dtype_name(operands));
    cache->path[operands] = path;
}

// Makes the calling thread's team size the device's, as oneDNN reads it; returns the old one.
static int set_team_size(int threads) {
    int old = omp_get_max_threads();
    if (old != threads)
        omp_set_num_threads(threads);
    return old;
}

// The caller has the lock, here and in entry_make.
static struct CacheEntry *entry_find(struct MatmulCache *cache, const struct ProductKey *key) {
    struct CacheEntry *e = cache->entries;
    while (e && memcmp(&e->key, key, sizeof *key) != 0)
        e = e->next;
    return e;
}

static struct CacheEntry *entry_make(struct MatmulCache *cache, const struct ProductKey *key) {
    if (!cache->engine)
        cache->engine = dnnl_engine_open();
    struct CacheEntry *e = base_alloc_zeroed(sizeof *e);
    e->key = *key;
    e->product = dnnl_product_open(cache->engine, key, &e->work_bytes);
    CHECK(e->product, "oneDNN has no product of %zu x %zu x %zu in %s", key->m, key->n, key->k,
          dtype_name(key->operands));
    e->next = cache->entries;
    return cache->entries = e;
}

static struct CacheEntry *entry_get(struct MatmulCache *cache, const struct ProductKey *key) {
    int team = set_team_size(cache->threads);
    pthread_mutex_lock(&cache->lock);
    struct CacheEntry *e = entry_find(cache, key);
    if (!e)
        e = entry_make(cache, key);
    pthread_mutex_unlock(&cache->lock);
    set_team_size(team);
    return e;
}

size_t matmul_cache_prepare(struct MatmulCache *cache, const struct ProductKey *key) {
    return entry_get(cache, key)->work_bytes;
}

void matmul_cache_run(struct MatmulCache *cache, const struct ProductKey *key,
                      const struct ProductData *data) {
    struct CacheEntry *e = entry_get(cache, key);
    int team = set_team_size(cache->threads);
    dnnl_product_run(e->product, data);
    set_team_size(team);
}
