// Saves the ways and algorithms chosen for matrix products as bytes: a checkpoint keeps them, so
// that a resumed run computes the same bits, although they were tuned by a clock, and although a
// newer cuBLASLt might offer more.
//
// An algorithm is 64 opaque bytes that only the same version of cuBLASLt understands, so the list
// names the version and the GPU's compute capability. Its first 8 letters name its format. The
// variants of kernels (variants.h), if a device has any, precede the list.
//
// Declared in kernels/device.h.
#include "kernels/cuda/blas_plan.h"

#include <errno.h>
#include <string.h>

// The beginning of the saved choices.
struct ChoicesHead {
    char magic[8];
    uint64_t library, compute_capability, count;
};
static const char CHOICES_MAGIC[8] = "zerobla2", OLD_MAGIC[8] = "zeroblas";

struct Cuda *blas_cuda(struct Device *d) {
    struct Cuda *cuda = (struct Cuda *)d;
    return d->kernels == &cuda_kernels && cuda->blas ? cuda : NULL;
}

static struct ChoicesHead make_head(const struct Cuda *cuda) {
    struct ChoicesHead head = {.library = cuda->blas->lt.GetVersion(), .count = cuda->blas->nplan};
    int major, minor;
    CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->index));
    CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->index));
    head.compute_capability = (uint64_t)(10 * major + minor);
    memcpy(head.magic, CHOICES_MAGIC, sizeof head.magic);
    return head;
}

size_t device_get_choices(struct Device *d, void *out, size_t bytes) {
    struct Cuda *cuda = blas_cuda(d);
    if (!cuda)
        return 0;
    struct ChoicesHead head = make_head(cuda);
    size_t variant_bytes = variants_save(&cuda->variants, NULL);
    size_t size = variant_bytes + sizeof head + head.count * sizeof(struct BlasChoice);
    if (!out)
        return size;
    CHECK(bytes >= size, "%zu bytes for choices of %zu bytes", bytes, size);
    out = (char *)out + variants_save(&cuda->variants, out);
    memcpy(out, &head, sizeof head);
    for (size_t i = 0; i < head.count; i++)
        memcpy((char *)out + sizeof head + i * sizeof(struct BlasChoice),
               &cuda->blas->plan[i].choice, sizeof(struct BlasChoice));
    return size;
}

// What follows from each refusal below, before what to do about it. The caller says before it whose
// list it is.
#define ANEW "they are chosen anew, and bits may differ from here on; for the same bits "

static bool is_sound(const struct BlasChoice *c) {
    const struct BlasKey *key = &c->key;
    return key->m && key->n && key->k && key->dtype < NDTYPE && key->c_dtype < NDTYPE &&
           key->epilogue < NEPILOGUE && c->way < NWAY && way_fits((enum Way)c->way, key);
}

// True if this cuBLASLt still offers the plan's algorithm; *status: its answer.
static bool is_offered(struct Blas *b, struct BlasPlan *p, cublasStatus_t *status) {
    const cublasLtMatmulAlgo_t *algo = &p->choice.algo;
    cublasLtMatmulHeuristicResult_t result = {0};
    *status = b->lt.MatmulAlgoCheck(b->handle, p->product, p->b, p->a, p->c, p->c, algo, &result);
    blas_check_refusal(b, "cublasLtMatmulAlgoCheck", *status, &p->choice.key);
    return *status == CUBLAS_STATUS_SUCCESS &&
           plan_allows_algorithm(b, &p->choice.key, &result, algo);
}

static int set_choice(struct Blas *b, const struct BlasChoice *choice, struct Error *e) {
    cublasStatus_t status;
    if (!is_sound(choice))
        return error_set(e, -EINVAL, E_MATMUL_ALGORITHMS,
                         "the list of matmul algorithms has a damaged entry: " ANEW
                         "use another checkpoint");
    if (plan_find(b, &choice->key))
        return error_set(e, -EINVAL, E_MATMUL_ALGORITHMS,
                         "the list of matmul algorithms has an entry twice: " ANEW
                         "use another checkpoint");
    struct BlasPlan p = {.choice = *choice};
    if (blas_ways[choice->way].library) {
        p = plan_open(b, &choice->key);
        p.choice = *choice;
        if (!is_offered(b, &p, &status)) {
            plan_close(b, &p);
            return error_set(e, -EINVAL, E_MATMUL_ALGORITHMS,
                             "cuBLASLt refuses one of the matmul algorithms (%s): " ANEW
                             "resume with the GPU and the driver of the run that saved them",
                             b->lt.GetStatusString(status));
        }
    }
    plan_keep(b, &p);
    return 0;
}

int device_set_choices(struct Device *d, const void *in, size_t bytes, struct Error *e) {
    struct Cuda *cuda = blas_cuda(d);
    struct ChoicesHead head, here;
    if (!cuda)
        return 0;
    CHECK(cuda->blas->nplan == 0, "algorithms are set before the first product");
    here = make_head(cuda);
    size_t variant_bytes = variants_saved_bytes(in, bytes); // which device_set_variants reads
    in = (const char *)in + variant_bytes;
    bytes -= variant_bytes;
    if (bytes >= sizeof head && memcmp(in, OLD_MAGIC, sizeof OLD_MAGIC) == 0)
        return error_set(e, -EINVAL, E_MATMUL_ALGORITHMS,
                         "the list of matmul algorithms has format %.8s, expected %.8s: " ANEW
                         "resume with the version of this program that saved them",
                         OLD_MAGIC, CHOICES_MAGIC);
    if (bytes < sizeof head || memcmp(in, CHOICES_MAGIC, sizeof CHOICES_MAGIC) != 0)
        return error_set(
            e, -EINVAL, E_MATMUL_ALGORITHMS,
            "the list of matmul algorithms is damaged (its %zu bytes do not begin with %.8s): " ANEW
            "use another checkpoint",
            bytes, CHOICES_MAGIC);
    memcpy(&head, in, sizeof head);
    if (head.library != here.library || head.compute_capability != here.compute_capability)
        return error_set(
            e, -EINVAL, E_MATMUL_ALGORITHMS_GPU,
            "the matmul algorithms are for cuBLASLt %llu on compute capability %llu, expected %llu "
            "and %llu: " ANEW "resume with that cuBLASLt, on such a GPU",
            (unsigned long long)head.library, (unsigned long long)head.compute_capability,
            (unsigned long long)here.library, (unsigned long long)here.compute_capability);
    if ((bytes - sizeof head) / sizeof(struct BlasChoice) != head.count ||
        (bytes - sizeof head) % sizeof(struct BlasChoice))
        return error_set(e, -EINVAL, E_MATMUL_ALGORITHMS,
                         "the list of matmul algorithms is damaged (%zu bytes for %llu "
                         "entries): " ANEW "use another checkpoint",
                         bytes, (unsigned long long)head.count);
    for (size_t i = 0; i < head.count; i++) {
        struct BlasChoice choice;
        memcpy(&choice, (const char *)in + sizeof head + i * sizeof choice, sizeof choice);
        int err = set_choice(cuda->blas, &choice, e);
        if (err)
            return err;
    }
    return 0;
}
