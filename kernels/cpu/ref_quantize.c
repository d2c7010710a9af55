// The plain kernels of block quantization: to blocks of few bits, and back, with sums over ranks.
//
// kernels/quantize.h defines a block. The fast versions are in quantize.c; they and a GPU's have
// the same bits.
#include "kernels/cpu/cpu.h"

// Returns run number `run` of adjacent runs of n elements.
static float *run_address(const void *runs, int bits, size_t n, size_t run) {
    return (float *)((char *)runs + run * quantized_bytes(bits, n));
}

// Writes elements [begin, end), one block, of the run at `to`.
static void write_block(float *to, int bits, size_t n, size_t begin, size_t end, const float *x) {
    uint8_t *q = (uint8_t *)(to + quantized_blocks(n));
    int32_t most = 0;
    for (size_t i = begin; i < end; i++)
        most = quantize_magnitude(x[i - begin]) > most ? quantize_magnitude(x[i - begin]) : most;
    float scale = quantize_scale(most, bits);
    to[begin / QUANTIZE_BLOCK] = scale;
    for (size_t i = begin; i < end; i++) {
        int32_t value = quantize_one(x[i - begin], quantize_divisor(scale));
        if (bits == 8)
            q[i] = (uint8_t)value;
        else
            q[i / 2] = i % 2 ? (uint8_t)(q[i / 2] | (value & 15) << 4) : (uint8_t)(value & 15);
    }
}

static float read_one(const float *from, int bits, size_t n, size_t i) {
    const uint8_t *q = (const uint8_t *)(from + quantized_blocks(n));
    return dequantize_one(quantized_at(q, bits, i), from[i / QUANTIZE_BLOCK]);
}

void oracle_quantize(struct Cpu *cpu, const struct Quantize *a) {
    (void)cpu;
    size_t rows = a->parts / a->columns;
    float block[QUANTIZE_BLOCK];
    quantize_check(a->bits, a->n, a->parts);
    for (size_t p = 0; p < a->parts; p++) {
        size_t source = p % rows * a->columns + p / rows; // the run that the transpose has at p
        for (size_t begin = 0; begin < a->n; begin += QUANTIZE_BLOCK) {
            size_t end = size_min(begin + QUANTIZE_BLOCK, a->n);
            for (size_t i = begin; i < end; i++)
                block[i - begin] = dtype_load(a->x, a->dtype, source * a->n + i);
            write_block(run_address(a->to, a->bits, a->n, p), a->bits, a->n, begin, end, block);
        }
    }
}

void oracle_dequantize(struct Cpu *cpu, const struct Dequantize *a) {
    (void)cpu;
    quantize_check(a->bits, a->n, a->parts * a->ranks);
    for (size_t p = 0; p < a->parts; p++)
        for (size_t i = 0; i < a->n; i++) {
            float sum = a->accumulate ? dtype_load(a->x, a->dtype, p * a->n + i) : 0;
            for (size_t r = 0; r < a->ranks; r++) {
                const float *from = run_address(a->from, a->bits, a->n, r * a->parts + p);
                float x = read_one(from, a->bits, a->n, i);
                sum = r == 0 && !a->accumulate ? x : sum + x;
            }
            dtype_store(a->x, a->dtype, p * a->n + i, sum);
        }
}

void oracle_requantize(struct Cpu *cpu, const struct Requantize *a) {
    (void)cpu;
    float block[QUANTIZE_BLOCK];
    quantize_check(a->bits, a->n, a->parts * a->ranks);
    for (size_t p = 0; p < a->parts; p++)
        for (size_t begin = 0; begin < a->n; begin += QUANTIZE_BLOCK) {
            size_t end = size_min(begin + QUANTIZE_BLOCK, a->n);
            for (size_t r = 0; r < a->ranks; r++)
                for (size_t i = begin; i < end; i++) {
                    const float *from = run_address(a->from, a->bits, a->n, r * a->parts + p);
                    float x = read_one(from, a->bits, a->n, i);
                    block[i - begin] = r ? block[i - begin] + x : x;
                }
            write_block(run_address(a->to, a->bits, a->n, p), a->bits, a->n, begin, end, block);
        }
}
