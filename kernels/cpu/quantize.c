// Block quantization: to blocks of few bits, and back, with sums over ranks.
//
// A block is read into an fp32 array of fixed length and processed by loops of that length, which
// the compiler vectorises. Missing elements of a short block are 0 there, which changes no maximum
// and is not written. Everything is bound by memory; the threads divide the blocks.
//
// kernels/quantize.h defines a block. Called through the kernel table by zero/wire/.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

// A block of a run: `count` elements from `begin` on.
struct BlockPosition {
    size_t run, begin, count;
};

// Locates a block by its number among those of all runs, each of n elements.
static inline struct BlockPosition position_of(size_t block, size_t n) {
    size_t blocks = quantized_blocks(n), begin = block % blocks * QUANTIZE_BLOCK;
    return (struct BlockPosition){block / blocks, begin, size_min(QUANTIZE_BLOCK, n - begin)};
}

// Writes x, whose elements from p.count on are 0, as block p of runs of n elements.
VEC_INLINE void write_block(void *runs, int bits, size_t n, struct BlockPosition p,
                            const float *x) {
    float *to = (float *)((char *)runs + p.run * quantized_bytes(bits, n));
    uint8_t *q = (uint8_t *)(to + quantized_blocks(n)), packed[QUANTIZE_BLOCK];
    int32_t most = 0, value[QUANTIZE_BLOCK];
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        most = quantize_magnitude(x[i]) > most ? quantize_magnitude(x[i]) : most;
    float scale = quantize_scale(most, bits), divisor = quantize_divisor(scale);
    to[p.begin / QUANTIZE_BLOCK] = scale;
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        value[i] = quantize_one(x[i], divisor);
    for (size_t i = 0; i < QUANTIZE_BLOCK && bits == 8; i++)
        packed[i] = (uint8_t)value[i];
    for (size_t i = 0; i < QUANTIZE_BLOCK / 2 && bits == 4; i++)
        packed[i] = (uint8_t)((value[2 * i] & 15) | (value[2 * i + 1] & 15) << 4);
    memcpy(q + (bits == 8 ? p.begin : p.begin / 2), packed,
           bits == 8 ? p.count : (p.count + 1) / 2);
}

// x = the block, or x += the block.
VEC_INLINE void read_block(const void *runs, int bits, size_t n, struct BlockPosition p, bool add,
                           float *x) {
    const float *from = (const float *)((const char *)runs + p.run * quantized_bytes(bits, n));
    const uint8_t *q = (const uint8_t *)(from + quantized_blocks(n));
    float scale = from[p.begin / QUANTIZE_BLOCK], value[QUANTIZE_BLOCK];
    uint8_t packed[QUANTIZE_BLOCK] = {0};
    memcpy(packed, q + (bits == 8 ? p.begin : p.begin / 2),
           bits == 8 ? p.count : (p.count + 1) / 2);
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        value[i] = dequantize_one(quantized_at(packed, bits, i), scale);
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        x[i] = add ? x[i] + value[i] : value[i];
}

VEC_INLINE void read_array(const void *a, enum Dtype d, size_t at, size_t count, float *x) {
    for (size_t i = 0; i < QUANTIZE_BLOCK; i++)
        x[i] = 0;
    for (size_t i = 0; i < count; i += VEC_LANES)
        vec_store_f32(x + i, vec_read(a, d, at + i, at + count));
}

VEC_INLINE void write_array(void *a, enum Dtype d, size_t at, size_t count, const float *x) {
    for (size_t i = 0; i < count; i += VEC_LANES)
        vec_write(a, d, at + i, at + count, vec_load_f32(x + i));
}

void CPU_NAME(quantize)(struct Cpu *cpu, const struct Quantize *a) {
    size_t rows = a->parts / a->columns;
    quantize_check(a->bits, a->n, a->parts);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < a->parts * quantized_blocks(a->n); k++) {
        struct BlockPosition p = position_of(k, a->n);
        size_t source = p.run % rows * a->columns + p.run / rows; // the transpose's run p.run
        float x[QUANTIZE_BLOCK];
        WITH_DTYPE(a->dtype, read_array(a->x, D, source * a->n + p.begin, p.count, x));
        if (a->bits == 8)
            write_block(a->to, 8, a->n, p, x);
        else
            write_block(a->to, 4, a->n, p, x);
    }
}

// Adds the ranks' blocks at p to x (add), or makes x their sum. A rank has `parts` runs.
static void sum_blocks(const void *from, int bits, size_t n, struct BlockPosition p, size_t parts,
                       size_t ranks, bool add, float *x) {
    for (size_t r = 0; r < ranks; r++) {
        struct BlockPosition theirs = {r * parts + p.run, p.begin, p.count};
        if (bits == 8)
            read_block(from, 8, n, theirs, add || r > 0, x);
        else
            read_block(from, 4, n, theirs, add || r > 0, x);
    }
}

void CPU_NAME(dequantize)(struct Cpu *cpu, const struct Dequantize *a) {
    quantize_check(a->bits, a->n, a->parts * a->ranks);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < a->parts * quantized_blocks(a->n); k++) {
        struct BlockPosition p = position_of(k, a->n);
        size_t at = p.run * a->n + p.begin;
        float x[QUANTIZE_BLOCK];
        if (a->accumulate)
            WITH_DTYPE(a->dtype, read_array(a->x, D, at, p.count, x));
        sum_blocks(a->from, a->bits, a->n, p, a->parts, a->ranks, a->accumulate, x);
        WITH_DTYPE(a->dtype, write_array(a->x, D, at, p.count, x));
    }
}

void CPU_NAME(requantize)(struct Cpu *cpu, const struct Requantize *a) {
    quantize_check(a->bits, a->n, a->parts * a->ranks);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t k = 0; k < a->parts * quantized_blocks(a->n); k++) {
        struct BlockPosition p = position_of(k, a->n);
        float x[QUANTIZE_BLOCK];
        sum_blocks(a->from, a->bits, a->n, p, a->parts, a->ranks, false, x);
        if (a->bits == 8)
            write_block(a->to, 8, a->n, p, x);
        else
            write_block(a->to, 4, a->n, p, x);
    }
}
