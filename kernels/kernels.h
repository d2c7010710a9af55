// The math of a transformer as one table of kernels, at the grain at which a GPU fuses.
//
// Every backend offers the same names with the same contracts. A kernel takes the stream it runs on
// and a struct of its operands, copied at the call; the buffers must live until the work has run.
// Arrays are row-major and dense unless a stride is named. T is time, B batch, C channels, NH
// query heads, NKV key heads (a divisor of NH), HS the size of a head, V vocabulary, Vp the padded
// vocabulary. An operand that a model does not have is NULL.
//
// Numbers: `dtype` is the storage of activations and parameters, F32, BF16 or F16; arithmetic,
// statistics, softmax and losses are fp32. Gradients of parameters are stored in `grad_dtype`. A
// result is rounded once, when it is stored, and what follows reads the stored value: the GELU that
// a matmul's epilogue computes acts on the rounded pre-activation, so that recomputing it later
// gives the same bits. For a given number of threads every kernel gives the same bits on every run;
// all but matmul give the same bits for any number of threads. On a GPU likewise for any order in
// which its threads happen to run.
//
// The plain versions (kernels/cpu/ref_*.c, table "oracle") define correct results; tests compare
// all others with them.
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H
#include "kernels/batch.h"
#include "kernels/device.h"
#include "kernels/layout.h"
#include "kernels/master.h"
#include "kernels/nf4.h"
#include "kernels/quantize.h"
#include "kernels/step_state.h"

// An operand of a matmul: element (i, j) is at data[i*ld + j], or at data[j*ld + i] if
// transposed. `scale` is for 8-bit formats and must be NULL for all others.
struct Mat {
    void *data;
    enum Dtype dtype;
    size_t ld;
    bool transposed;
    const float *scale;
};

// Scratch memory on the device, at least the bytes that the kernel's work query asks for. Its
// contents are undefined before and after. Kernels of one queue may share it.
struct Work {
    void *mem;
    size_t bytes;
};

// C (m, n) = epilogue(A (m, k) · B (k, n)), accumulated in fp32. a and b have one dtype; c may
// differ and is not transposed. Epilogue, in this order:
//   accumulate: add the old C; cuBLASLt first rounds the product to a 16-bit C's format.
//   bias: add bias[j], in b's dtype (NULL: none).
//   dgelu: multiply by the derivative of tanh-GELU at dgelu[i, j], c's dtype and ld (NULL: none).
//   With --autotune a GPU may first have stored, and so rounded, a 16-bit product.
//   store C.   gelu: store GELU of the stored C there, c's dtype and ld (NULL: none).
//   dbias: dbias[i] (+)= sum over k of A[i, k], c's dtype: the bias gradient that belongs to a
//   weight gradient, where A is the transposed output gradient (NULL: none; += if accumulate is
//   set).
//
// k2: C = epilogue(A · B + A2 · B2), with A2 (m, k2) and B2 (k2, n) of a's dtype; 0: no such
// pair. Not with accumulate, nor with dbias. A GPU first stores A2 · B2, and so rounds it to C's
// format.
//
// few_rows: a pass of generation has a row of each sequence, at most MATMUL_FEW_ROWS; A is not
// transposed, B is (the weights), likewise A2 and B2, and dgelu and dbias are NULL. A CPU then
// reads B once, at the memory's rate, and a row's result is the same to the bit whatever rows are
// computed with it. A GPU and the oracle pay no heed to it.
enum { MATMUL_FEW_ROWS = 16 };
struct Matmul {
    size_t m, n, k, k2;
    struct Mat a, b, a2, b2, c;
    bool accumulate, few_rows;
    const void *bias, *dgelu;
    void *gelu, *dbias;
    struct Work work;
};

// Checks the operands that every table accepts.
static inline void matmul_check(const struct Matmul *a) {
    CHECK(a->m && a->n && a->k, "a matmul of %zu x %zu x %zu", a->m, a->n, a->k);
    CHECK(a->a.dtype == a->b.dtype, "a matmul of %s and %s", dtype_name(a->a.dtype),
          dtype_name(a->b.dtype));
    CHECK(!a->c.transposed, "C of a matmul cannot be transposed");
    CHECK(!a->a.scale && !a->b.scale && !a->c.scale, "scales are for 8-bit formats");
    CHECK(!a->k2 || (a->a2.dtype == a->a.dtype && a->b2.dtype == a->a.dtype && !a->a2.scale &&
                     !a->b2.scale && !a->accumulate && !a->dbias),
          "a matmul of %s with a second product of %s, of k %zu", dtype_name(a->a.dtype),
          dtype_name(a->a2.dtype), a->k2);
}

// sum = x + delta (NULL: sum is x itself, and `sum` is not written), stored; then the norm of the
// stored sum. With `mean` it is layer norm: y = (sum - mean) * rstd * weight + bias, rstd = 1 /
// sqrt(variance + eps) (Ba et al. 2016). mean NULL: RMS norm, y = sum * rstd * weight + bias, rstd
// = 1 / sqrt(mean of squares + eps) (Zhang, Sennrich 2019). bias NULL: 0. x, delta, sum, y: (rows,
// c) in dtype; weight, bias: (c) in dtype; mean, rstd: (rows) fp32. sum may be the same buffer as x
// or delta. y == NULL: only the sum is made (mean, rstd unused).
struct NormForward {
    size_t rows, c;
    enum Dtype dtype;
    float eps;
    const void *x, *delta;
    void *sum, *y;
    float *mean, *rstd;
    const void *weight, *bias;
};

// dx += gradient through the norm (added to what dx holds: the gradient that flows past the norm in
// the residual stream); dweight, dbias (c) in grad_dtype, added to if accumulate, else overwritten;
// NULL: none, dbias also if dweight is. x is the stored sum of the forward pass; mean NULL: RMS
// norm. dy, dx, x: (rows, c) in dtype.
struct NormBackward {
    size_t rows, c;
    enum Dtype dtype, grad_dtype;
    const void *dy, *x, *weight;
    const float *mean, *rstd;
    void *dx, *dweight, *dbias;
    bool accumulate;
    struct Work work;
};

// Causal attention of many heads. qkv: (B, T, NH + 2 NKV, HS), queries, keys, values; query head h
// reads key head h / (NH / NKV) (grouped queries: Ainslie et al. 2023). out: (B, T, NH, HS). Both
// in dtype. lse: (B, NH, T) fp32, the log of the sum of exp of the scaled scores, all that the
// backward pass needs of the softmax. Scores are scaled by 1/sqrt(HS). No T x T matrix is ever
// stored (Dao et al., FlashAttention, 2022; FlashAttention-2, 2023).
//
// first: (B, T), the first key that each query sees, at most the query's own position and never
// decreasing along T: for windows and packed documents. Tiles that no query sees are skipped. NULL:
// all see key 0. window: if `first` is only a window, its number of keys; else 0. Only the cost
// (cost.h) reads it, since it does not follow `first`, which may be in device memory.
//
// layout: with sparse attention each head sees only keys in its table's cells (layout.h), which are
// made for at least t tokens, in the backward pass for exactly t.
struct AttentionForward {
    size_t b, t, nh, nkv, hs, window;
    enum Dtype dtype;
    const void *qkv;
    const int32_t *first;
    struct Layout layout;
    void *out;
    float *lse;
    struct Work work;
};

// dqkv: (B, T, NH + 2 NKV, HS), overwritten. It must not be the same buffer as qkv.
struct AttentionBackward {
    size_t b, t, nh, nkv, hs, window;
    enum Dtype dtype;
    const void *qkv, *out, *dout;
    const int32_t *first;
    struct Layout layout;
    const float *lse;
    void *dqkv;
    struct Work work;
};

// Attention of the t newest tokens of b sequences over the keys and values that a cache holds of
// each (generation). Row (b, i) is at position p = row_position(starts, row, t); a sequence's rows
// follow one another.
//   1. Each row's key and value are stored in the cache at p % capacity.
//   2. out (b, t, nh, hs) = what AttentionForward has for query p of a sequence whose keys and
//      values of positions 0 .. p are the cache's; with a window of the last `window` of them.
// qkv: (b, t, nh + 2 nkv, hs) in dtype. cache: (b, 2, nkv, capacity, hs) in cache_dtype, keys and
// then values; capacity is a multiple of LAYOUT_TILE, at least p + 1 of every row, or with a window
// at least window + t - 1: then positions take turns.
struct AttentionCached {
    size_t b, t, nh, nkv, hs, window, capacity;
    enum Dtype dtype, cache_dtype;
    const int32_t *starts;
    const void *qkv;
    void *cache, *out;
    struct Work work;
};

// Checks the operands that every table accepts.
static inline void attention_cached_check(const struct AttentionCached *a) {
    CHECK(a->capacity && a->capacity % LAYOUT_TILE == 0, "a cache of %zu tokens", a->capacity);
    CHECK(a->nkv && a->nh % a->nkv == 0, "%zu heads of %zu", a->nh, a->nkv);
}

// starts: (B, T), where each token's document begins in its sequence (batch.h); NULL: at 0. The
// position of row b * T + t is t minus that: a document's tokens have the same positions, and so
// the same angles to the bit, as in a sequence of their own. (Rotation depends only on differences
// of positions, but angles far from 0 are rounded more coarsely.) If a cache holds n tokens before
// the first one here, starts are -n.
HOST_DEVICE static inline size_t row_position(const int32_t *starts, size_t row, size_t t) {
    return row % t - (starts ? (size_t)starts[row] : 0);
}

// Rotary position embedding of queries and keys, after a norm of each head if the model has one.
// x, y: (B, T, NH + 2 NKV, HS) in dtype, as attention's qkv. For heads 0 .. NH + NKV - 1
//   n = x, or x * rstd * weight with weight q_norm or k_norm (HS), rstd = 1 / sqrt(mean of x^2 over
//   the head + eps) (Qwen3)
//   y_i = n_i cos - n_j sin,  y_j = n_j cos + n_i sin,  i < HS / 2, j = i + HS / 2
// and the values are copied. table: (T, HS / 2, 2), cos and sin of each position's angles, fp32;
// starts: see row_position. HS is even. y may be x if there are no norms. (Su et al., RoFormer,
// 2021; the pairs are Hugging Face's.)
struct RotateForward {
    size_t b, t, nh, nkv, hs;
    enum Dtype dtype;
    const int32_t *starts;
    const float *table;
    const void *q_norm, *k_norm;
    float eps;
    const void *x;
    void *y;
};

// dy becomes the gradient of x, in place; dq_norm, dk_norm (NULL: none): (HS) in grad_dtype, added
// to if accumulate, else overwritten. x is read only if there are norms.
struct RotateBackward {
    size_t b, t, nh, nkv, hs;
    enum Dtype dtype, grad_dtype;
    const int32_t *starts;
    const float *table;
    const void *x, *q_norm, *k_norm;
    float eps;
    void *dy, *dq_norm, *dk_norm;
    bool accumulate;
    struct Work work;
};

// y = silu(g) u, silu(g) = g / (1 + e^-g), where x (rows, 2n) is [g | u] in each row; y: (rows, n)
// (Shazeer, "GLU Variants Improve Transformer", 2020).
struct SwigluForward {
    size_t rows, n;
    enum Dtype dtype;
    const void *x;
    void *y;
};

// dx (rows, 2n) from dy (rows, n), overwritten. dx may be x.
struct SwigluBackward {
    size_t rows, n;
    enum Dtype dtype;
    const void *x, *dy;
    void *dx;
};

// y = GELU(x), tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks, Gimpel 2016).
// n elements.
struct GeluForward {
    size_t n;
    enum Dtype dtype;
    const void *x;
    void *y;
};

// y = x times `scale` where an element is kept, times 0 where it is dropped. Element (row, col) is
// dropped if a uniform number of `seed` and of its index, first + row * stride + col, is below p:
// the same ones whatever part of a tensor a rank has. p 0: none. Srivastava et al. 2014. x, y:
// (rows, cols) in dtype; y may be x.
struct Dropout {
    size_t rows, cols;
    enum Dtype dtype;
    const void *x;
    void *y;
    float scale, p;
    uint64_t seed, first;
    size_t stride;
};

// Returns what element (row, col) of x is multiplied by.
HOST_DEVICE static inline float dropout_factor(const struct Dropout *a, size_t row, size_t col) {
    uint64_t index = a->first + (uint64_t)row * a->stride + col;
    return a->p > 0 && rng_uniform(a->seed, index) < a->p ? 0 : a->scale;
}

// Returns a token's row in a matrix of v rows for tokens from first_token on: all tokens, or a
// rank's part of a vocabulary that is split. v or more: the token has no row here.
HOST_DEVICE static inline size_t token_row(int32_t token, size_t first_token) {
    return (size_t)token - first_token;
}

// out[b, t] = wte[token_row] + wpe[p], p = row_position of (b, t); 0 + wpe[p] for a token without a
// row. tokens: (B, T); wte: (v, C), wpe: (at least T, C; NULL: 0), out (B, T, C).
struct EmbedForward {
    size_t b, t, c, v, first_token;
    enum Dtype dtype;
    const int32_t *tokens, *starts;
    const void *wte, *wpe;
    void *out;
};

// dwte[token_row] += the token's rows of dout, summed in fp32 and rounded once per token of the
// batch, in an order that depends neither on threads nor on the tokens that have a row; always
// added: if the head's matrix is wte, its backward pass wrote dwte first. A token without a row
// adds nothing. dwpe[p] (+)= sum over the rows of position p (NULL: none), likewise; rows t.. of
// dwpe are left alone. v: rows of dwte.
struct EmbedBackward {
    size_t b, t, c, v, first_token;
    enum Dtype dtype, grad_dtype;
    const int32_t *tokens, *starts;
    const void *dout;
    void *dwte, *dwpe;
    bool accumulate; // for dwpe
    struct Work work;
};

// Cross entropy of a softmax over the first v of vp columns, for some rows of the batch.
// loss[i] = logsumexp(logits[i, :v]) - logits[i, targets[i]], fp32, not averaged.
// If backward: logits are replaced by (softmax - onehot) * dloss * loss_scale; columns v .. vp
// become 0. A row whose target is UNCOUNTED (batch.h) has loss 0 and gradient 0, whatever its
// logits are. loss_scale: on the device, like a step's constants (NULL: 1).
struct Classifier {
    size_t rows, v, vp;
    enum Dtype dtype;
    void *logits;
    const int32_t *targets; // 0 .. v - 1, or UNCOUNTED
    float *loss;
    const float *loss_scale;
    float dloss;
    bool backward;
};

// The partial result of a row's softmax on a rank that has a part of the vocabulary: the largest
// logit, the target's logit (-inf if another part has it) and the sum of e^(x - max). If no logit
// is above -inf, or the row's target is UNCOUNTED, the sum is 0 and max is -inf.
struct SoftmaxPart {
    float max, target;
    double sum;
};

// The first half of a Classifier whose vocabulary is split over ranks (Shoeybi et al., Megatron-LM,
// 2019, section 3): each rank reduces its part, one all_gather gives all the results to all, and
// each rank computes the losses and the gradients of its own logits (ClassifierMerge).
//
// logits: (rows, vp). Columns 0 .. v - 1 are tokens first_token .. first_token + v - 1; v may be 0.
// part: (rows), overwritten.
struct ClassifierPart {
    size_t rows, v, vp, first_token;
    enum Dtype dtype;
    const void *logits;
    const int32_t *targets; // of the whole vocabulary, or UNCOUNTED
    struct SoftmaxPart *part;
};

// The second half. all: (parts, rows), the ranks' results, merged in this order: each rank gets the
// same bits of the losses. The rest is as for Classifier, for this rank's columns, up to the
// rounding of the sum.
struct ClassifierMerge {
    size_t rows, v, vp, first_token, parts;
    enum Dtype dtype;
    void *logits;
    const int32_t *targets;
    const struct SoftmaxPart *all;
    float *loss;
    const float *loss_scale;
    float dloss;
    bool backward;
};

// out[0] (+)= sum of x[i], or of x[i]^2 if square. Chunks of fixed size are summed separately and
// added in order, in fp64, so the bits do not depend on threads.
struct Sum {
    size_t n;
    enum Dtype dtype;
    const void *x;
    bool square, accumulate;
    double *out;
};

// The step's end (step_state.h), with the sum of squares of the whole gradient: the sum of
// squares[r * stride + i], r < ranks, i < n, added rank by rank in fp64. With pipeline parallelism
// each stage has so many ranks, and each number belongs to one stage: the others have 0.
struct StepClip {
    size_t ranks, n, stride, stages;
    const double *squares;
    struct StepState *state;
};
// Returns number i of rank r, from the one stage that has it.
HOST_DEVICE static inline double step_clip_square(const struct StepClip *a, size_t r, size_t i) {
    double sum = 0; // of one number and zeros: exact, so independent of the stages
    for (size_t stage = 0; stage < a->stages; stage++)
        sum += a->squares[(stage * a->ranks + r) * a->stride + i];
    return sum;
}

// AdamW (Loshchilov, Hutter 2019) on n elements; the first n_decay of them also decay.
//   g = grad * grad_scale;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr * (m / correction.first / (sqrt(v / correction.second) + eps) + weight_decay * w)
// m, v: moments_dtype, F32 or BF16; w moves by the new moments before they are rounded and stored.
// grad: grad_dtype. Nothing is written if state->skip. master_format (master.h) decides where w is
// read and written; param_dtype is BF16 for the last two:
//   fp32    master: fp32. param: receives the new weights in param_dtype; NULL if the fp32
//           master is itself the parameter
//   split   master: the lower halves (uint16_t). param: the weights, the upper halves, read and
//           written; the sign of v belongs to w
//   bf16    master: the weights, rounded with the random number of (seed, state->updates,
//           index + i). param: NULL, or receives the same
//
// A run may continue on another machine, with optimizer state partly on a GPU and partly on the
// CPU: so every table but the oracle has the same bits (except those of a NaN), those of
//   g = grad * grad_scale;  m = fma(beta1, m, (1 - beta1) * g)
//   v = fma(beta2, v, (1 - beta2) * g * g)
//   w -= lr * fma(decay, w,
//                 m * (1 / correction.first) / (sqrt(v * (1 / correction.second)) + eps))
// in fp32, each operation rounded once as IEEE 754 says; decay is 0 from n_decay on.
struct AdamW {
    size_t n, n_decay;
    enum Dtype grad_dtype, param_dtype, moments_dtype;
    enum MasterFormat master_format;
    void *master;
    void *m, *v;
    const void *grad;
    void *param;
    const struct StepState *state;
    uint64_t seed, index; // of the first element; only for bf16 masters
};

// Checks the operands that every table accepts.
static inline void adamw_check(const struct AdamW *a) {
    bool split = a->master_format == MASTER_SPLIT, narrow = a->master_format != MASTER_FP32;
    CHECK(a->moments_dtype == F32 || a->moments_dtype == BF16, "moments in %s",
          dtype_name(a->moments_dtype));
    CHECK(!narrow || a->param_dtype == BF16, "%s masters of %s weights",
          master_name(a->master_format), dtype_name(a->param_dtype));
    CHECK(!split || a->param, "split masters without their upper halves");
}

// dst[i] = src[i], rounded to dst's format. n elements.
struct Cast {
    size_t n;
    enum Dtype dst_dtype, src_dtype;
    void *dst;
    const void *src;
};

// dst[i] = std * normal(seed, fill_index(i)) + mean, fp32 (kernels/dtype.h); or, if `uniform`,
// std * a uniform number in [-1, 1) + mean.
//
// run 0: element i is element index + i of the whole tensor. Else dst is a part of a TP rank's
// columns of a matrix: `run` of them in each row of `stride`, the first at element `index`; dst[0]
// is the part's element `first`. So each rank has the values of the whole matrix.
struct FillNormal {
    size_t n;
    float *dst;
    uint64_t seed, index;
    float mean, std;
    size_t first, run, stride;
    bool uniform;
};

// Returns the index in the whole tensor of element i of dst.
HOST_DEVICE static inline uint64_t fill_index(const struct FillNormal *a, size_t i) {
    size_t at = a->first + i;
    return a->index + (a->run ? at / a->run * a->stride + at % a->run : i);
}

// Returns element i of dst.
HOST_DEVICE static inline float fill_value(const struct FillNormal *a, size_t i) {
    uint64_t at = fill_index(a, i);
    float x = a->uniform ? 2 * rng_uniform(a->seed, at) - 1 : rng_normal(a->seed, at);
    return a->std * x + a->mean;
}

// The two kernels of collectives between ranks that can read each other's memory. src is an array
// of `ranks` pointers in host memory. If a device's calls may wait, it is read when the kernel
// runs: each rank learns the others' buffers in the order of the queue. Else it is read when the
// kernel is queued (zero/comm/thread.c).
//
// dst[i] = sum over r of src[r][begin + i] for n elements of dtype, plus the old dst[i] if
// accumulate: added in fp32 in the order of r, rounded once. dst may be src[r] + begin.
struct RankSum {
    size_t n, begin, ranks;
    enum Dtype dtype;
    void *const *src;
    void *dst;
    bool accumulate;
};

// Copies `bytes` bytes from src[r] + begin + r * step to dst + r * bytes, for each r but `skip`.
struct RankGather {
    size_t bytes, step, ranks, skip;
    void *const *src;
    void *dst;
    size_t begin;
};

// Every kernel once: its name and its struct. Tables, launchers and declarations are made from this
// list.
#define KERNEL_LIST(X)                                                                             \
    X(matmul, Matmul)                                                                              \
    X(norm_forward, NormForward)                                                                   \
    X(norm_backward, NormBackward)                                                                 \
    X(attention_forward, AttentionForward)                                                         \
    X(attention_backward, AttentionBackward)                                                       \
    X(attention_cached, AttentionCached)                                                           \
    X(rotate_forward, RotateForward)                                                               \
    X(rotate_backward, RotateBackward)                                                             \
    X(gelu_forward, GeluForward)                                                                   \
    X(dropout, Dropout)                                                                            \
    X(swiglu_forward, SwigluForward)                                                               \
    X(swiglu_backward, SwigluBackward)                                                             \
    X(embed_forward, EmbedForward)                                                                 \
    X(embed_backward, EmbedBackward)                                                               \
    X(classifier, Classifier)                                                                      \
    X(classifier_part, ClassifierPart)                                                             \
    X(classifier_merge, ClassifierMerge)                                                           \
    X(sum, Sum)                                                                                    \
    X(step_clip, StepClip)                                                                         \
    X(adamw, AdamW)                                                                                \
    X(cast, Cast)                                                                                  \
    X(fill_normal, FillNormal)                                                                     \
    X(rank_sum, RankSum)                                                                           \
    X(rank_gather, RankGather)                                                                     \
    X(quantize, Quantize)                                                                          \
    X(dequantize, Dequantize)                                                                      \
    X(requantize, Requantize)                                                                      \
    X(nf4_quantize, Nf4Quantize)                                                                   \
    X(nf4_dequantize, Nf4Dequantize)

// The kernels that need scratch. The query reads sizes, dtypes and flags of the struct, of pointers
// only whether an optional operand is NULL, and returns bytes (0: none).
#define KERNEL_WORK_LIST(X)                                                                        \
    X(matmul, Matmul)                                                                              \
    X(norm_backward, NormBackward)                                                                 \
    X(attention_forward, AttentionForward)                                                         \
    X(attention_backward, AttentionBackward)                                                       \
    X(attention_cached, AttentionCached)                                                           \
    X(rotate_backward, RotateBackward)                                                             \
    X(embed_backward, EmbedBackward)

struct Kernels {
    const char *name;
#define X(op, Args) void (*op)(struct Stream *, const struct Args *);
    KERNEL_LIST(X)
#undef X
#define X(op, Args) size_t (*op##_work)(struct Device *, const struct Args *);
    KERNEL_WORK_LIST(X)
#undef X
};

#endif
