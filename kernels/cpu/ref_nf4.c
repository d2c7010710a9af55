// The plain kernels of NF4: weights to 4 bits, and back.
//
// kernels/nf4.h defines the format. The fast versions are in nf4.c; they and a GPU's have the same
// bits.
#include "kernels/cpu/cpu.h"

// Writes the elements' codes, and the largest magnitude of each block to absmax.
static void write_codes(struct Nf4Run *to, const float *x, float *absmax) {
    for (size_t b = 0; b < NF4_BLOCKS; b++) {
        const float *block = x + b * NF4_BLOCK;
        int32_t most = 0;
        for (size_t i = 0; i < NF4_BLOCK; i++)
            if (quantize_magnitude(block[i]) > most)
                most = quantize_magnitude(block[i]);
        absmax[b] = f32_from_bits((uint32_t)most);
        float inverse = nf4_inverse(absmax[b]);
        for (size_t i = 0; i < NF4_BLOCK; i += 2)
            to->code[(b * NF4_BLOCK + i) / 2] =
                (uint8_t)(nf4_code(block[i], inverse) << 4 | nf4_code(block[i + 1], inverse));
    }
}

static void write_absmax(struct Nf4Run *to, const float *absmax) {
    int32_t most = 0;
    to->offset = nf4_offset(nf4_sum(absmax));
    for (size_t b = 0; b < NF4_BLOCKS; b++)
        if (quantize_magnitude(absmax[b] - to->offset) > most)
            most = quantize_magnitude(absmax[b] - to->offset);
    to->scale = nf4_scale(most);
    for (size_t b = 0; b < NF4_BLOCKS; b++)
        to->absmax[b] = nf4_absmax_code(absmax[b] - to->offset, to->scale);
}

void oracle_nf4_quantize(struct Cpu *cpu, const struct Nf4Quantize *a) {
    (void)cpu;
    nf4_check(a->n);
    for (size_t r = 0; r < a->n / NF4_RUN; r++) {
        struct Nf4Run *to = (struct Nf4Run *)a->to + r;
        float x[NF4_RUN], absmax[NF4_BLOCKS];
        for (size_t i = 0; i < NF4_RUN; i++)
            x[i] = dtype_load(a->x, a->dtype, r * NF4_RUN + i);
        write_codes(to, x, absmax);
        write_absmax(to, absmax);
    }
}

void oracle_nf4_dequantize(struct Cpu *cpu, const struct Nf4Dequantize *a) {
    (void)cpu;
    nf4_check(a->n);
    for (size_t i = 0; i < a->n; i++) {
        const struct Nf4Run *from = (const struct Nf4Run *)a->from + i / NF4_RUN;
        size_t at = i % NF4_RUN;
        float absmax = nf4_absmax(from->absmax[at / NF4_BLOCK], from->scale, from->offset);
        dtype_store(a->x, a->dtype, i, nf4_element(nf4_code_at(from->code, at), absmax));
    }
}
