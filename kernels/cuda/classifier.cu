// The loss: cross entropy of a softmax, and its gradient in place of the logits.
//
// A block owns a row of 50,257 logits and walks it twice. The first walk finds the maximum and the
// sum of e^(x - maximum) together: each thread scales its sum when a pack raises its maximum, and
// the threads' pairs are joined in a fixed order at the end (Milakov, Gimelshein, "Online
// normalizer calculation for softmax", 2018). The second walk recomputes e^(x - maximum), and
// writes.
//
// Memory is read once only if the second walk finds the row in the L2 cache. A row is 50,304 x 2
// bytes = 101 KB. An H100 has 132 SMs and 50 MB of L2, in two partitions of 25 MB: if a line's home
// is the partition far from the SM that reads it, the near one may hold a copy, so a row can take
// up to 1.5 times its size. Between a line's two reads each block in flight touches about a row:
//
//   512 threads, 4 blocks per SM   132 x 4 x 101 KB = 53 MB, with copies 80 MB: it does not fit
//   768 threads, 2 blocks per SM   132 x 2 x 101 KB = 27 MB, with copies 40 MB: it fits
//
// 768 threads limit it to two blocks on every GPU: a third does not fit among an SM's 2048 threads
// (8.0, 9.0, 10.0), and 2 x 768 is all of 1536 (8.6, 8.9, 12.0); with 42 registers a thread both
// fit. One block alone would leave its SM idle while its threads join their sums. Reads in flight
// are 2 x 768 x 3 packs of 16 bytes = 74 KB per SM; 3.35 TB/s at a latency of 0.7 us need 18. A row
// of GPT-2 is 8.2 packs a thread: three rounds of three.
//
// Two more things keep waiting rows in the cache. The second walk marks its reads and writes to
// leave first (ptx_load_last, ptx_store_streaming): otherwise the gradients would be the youngest
// lines, and push out rows that are still to be read again. And rows go from the last to the first:
// the product has just written the last ones, which are still in the cache, and the backward
// products begin with the first ones, which are then the last written. (That holds as far as
// cuBLASLt walks C by rows, which depends on its algorithms.) Each of the two is worth at most the
// 50 MB of the cache in a chunk of about 1 GB.
//
// Expected: a micro-batch of 32 x 1024 tokens has 3.3 GB of logits. Reading them once instead of
// twice saves at most 3.3 GB / 3.35 TB/s = 1.0 ms, of a step of GPT-2 124M of some 57 ms on
// paper (docs/gpu.md); with a third of the second walk in the cache as it was, about 1% of the
// step.
//
// Called through the kernel table, for one chunk of rows after another (model/acts.c). The walks
// are in classifier.cuh. Read next: classifier_part.cu.
#include "kernels/cuda/classifier.cuh"

enum { THREADS = 768, BLOCKS_PER_SM = 2 };

template <class T, Access ACCESS>
static __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM)
    classifier_kernel(struct Logits a) {
    unsigned at = gridDim.x - 1 - blockIdx.x;
    T *row = (T *)a.logits + (size_t)at * a.vp;
    if (a.targets[at] == UNCOUNTED) { // the same for all threads of the block
        if (threadIdx.x == 0)
            a.loss[at] = 0;
        if (a.backward)
            write_zeros<THREADS, ACCESS>(a, row);
        return;
    }
    unsigned target = (unsigned)a.targets[at];
    float at_target = to_float(row[target]);
    Softmax s = join_block<THREADS>(
        thread_softmax<THREADS, ACCESS>(row, a.v, a.vp)); // by then all have read their target
    if (threadIdx.x == 0)
        a.loss[at] = logf(s.sum) - (at_target - s.max);
    if (a.backward)
        write_gradients<THREADS, ACCESS>(a, row, target, s);
}

extern "C" void cuda_classifier(struct Stream *s, const struct Classifier *a) {
    struct Logits l = {(unsigned)a->v, (unsigned)a->vp, a->logits, a->targets,
                       a->loss,        a->loss_scale,   a->dloss,  a->backward};
    CHECK(a->rows <= INT32_MAX && a->vp <= INT32_MAX / 2, "(%zu, %zu)", a->rows, a->vp);
    if (!a->rows)
        return;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        with_bool(is_whole<T>(a->vp) && is_aligned(a->logits, 16), [&](auto yes) {
            gpu_launch(s, classifier_kernel < T, yes ? WHOLE : SCALAR >, (unsigned)a->rows, THREADS,
                       0, l);
        });
    });
}
