// Dropout, or a plain scale, of adapters' operands: an element to a thread, since the tensors are
// small. Called through the kernel table. Read next: norm.cu.
#include "kernels/cuda/gpu.cuh"

enum { THREADS = 256 };

template <class T>
static __global__ void __launch_bounds__(THREADS) dropout_kernel(struct Dropout a) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= a.rows * a.cols)
        return;
    float factor = dropout_factor(&a, i / a.cols, i % a.cols);
    ((T *)a.y)[i] = from_float<T>(to_float(((const T *)a.x)[i]) * factor);
}

extern "C" void cuda_dropout(struct Stream *s, const struct Dropout *a) {
    size_t n = a->rows * a->cols;
    with_type(a->dtype, [&](auto *type) {
        using T = std::remove_pointer_t<decltype(type)>;
        if (n)
            gpu_launch(s, dropout_kernel<T>, (unsigned)ceil_div(n, THREADS), THREADS, 0, *a);
    });
}
