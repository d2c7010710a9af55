// NF4: weights to 4 bits, and back.
//
// An element that comes back is one of 16 products of its block, so these are rounded to the
// array's dtype once, and elements are looked up among them (vec_lookup.h): that keeps up with
// memory. Writing is loops of fixed length, which the compiler vectorises. The threads divide the
// runs.
//
// kernels/nf4.h defines the format. Called through the kernel table.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"
#include "kernels/cpu/vec_lookup.h"

VEC_INLINE void read_elements(const void *a, enum Dtype d, size_t at, float *x) {
    for (size_t i = 0; i < NF4_BLOCK; i += VEC_LANES)
        vec_store_f32(x + i, vec_load(a, d, at + i));
}

static inline int32_t largest_magnitude_bits(const float *x, size_t n) {
    int32_t most = 0;
    for (size_t i = 0; i < n; i++)
        most = quantize_magnitude(x[i]) > most ? quantize_magnitude(x[i]) : most;
    return most;
}

// Writes a block's codes, and returns its absmax.
VEC_INLINE float write_codes(uint8_t *to, const float *x) {
    int32_t code[NF4_BLOCK];
    float absmax = f32_from_bits((uint32_t)largest_magnitude_bits(x, NF4_BLOCK));
    float inverse = nf4_inverse(absmax);
    for (size_t i = 0; i < NF4_BLOCK; i++)
        code[i] = nf4_code(x[i], inverse);
    for (size_t i = 0; i < NF4_BLOCK / 2; i++)
        to[i] = (uint8_t)(code[2 * i] << 4 | code[2 * i + 1]);
    return absmax;
}

static void write_absmax(struct Nf4Run *to, const float *absmax) {
    float difference[NF4_BLOCKS];
    to->offset = nf4_offset(nf4_sum(absmax));
    for (size_t b = 0; b < NF4_BLOCKS; b++)
        difference[b] = absmax[b] - to->offset;
    to->scale = nf4_scale(largest_magnitude_bits(difference, NF4_BLOCKS));
    for (size_t b = 0; b < NF4_BLOCKS; b++)
        to->absmax[b] = nf4_absmax_code(difference[b], to->scale);
}

void CPU_NAME(nf4_quantize)(struct Cpu *cpu, const struct Nf4Quantize *a) {
    nf4_check(a->n);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t r = 0; r < a->n / NF4_RUN; r++) {
        struct Nf4Run *to = (struct Nf4Run *)a->to + r;
        float x[NF4_BLOCK], absmax[NF4_BLOCKS];
        for (size_t b = 0; b < NF4_BLOCKS; b++) {
            WITH_DTYPE(a->dtype, read_elements(a->x, D, r * NF4_RUN + b * NF4_BLOCK, x));
            absmax[b] = write_codes(to->code + b * NF4_BLOCK / 2, x);
        }
        write_absmax(to, absmax);
    }
}

// Returns nf4_element of codes k, k + 1, ...: that of NF4_ZERO is 0 even if absmax is a NaN.
VEC_INLINE Vec code_elements(int32_t k, float absmax) {
    float value[VEC_LANES];
    for (int32_t i = 0; i < VEC_LANES; i++)
        value[i] = nf4_value(k + i);
    Vec x = vec_load_f32(value) * vec_set(absmax);
    if (k > NF4_ZERO || k + VEC_LANES <= NF4_ZERO)
        return x;
    Vec up_to = vec_select(vec_mask(NF4_ZERO + 1 - (size_t)k), vec_set(0), x);
    return vec_select(vec_mask(NF4_ZERO - (size_t)k), x, up_to);
}

VEC_INLINE void read_run(const struct Nf4Run *from, enum Dtype d, void *x) {
    for (size_t b = 0; b < NF4_BLOCKS; b++) {
        const uint8_t *code = from->code + b * NF4_BLOCK / 2;
        float absmax = nf4_absmax(from->absmax[b], from->scale, from->offset);
        Vec element[NF4_CODES / VEC_LANES];
        VecHalf half[NF4_CODES / VEC_LANES];
        for (int32_t i = 0; i < NF4_CODES / VEC_LANES; i++) {
            element[i] = code_elements(i * VEC_LANES, absmax);
            if (d != F32)
                half[i] = vec_narrow(element[i], d);
        }
        if (d == F32)
            vec_lookup_f32(element, code, NF4_BLOCK, (float *)x + b * NF4_BLOCK);
        else
            vec_lookup_half(half, code, NF4_BLOCK, (uint16_t *)x + b * NF4_BLOCK);
    }
}

void CPU_NAME(nf4_dequantize)(struct Cpu *cpu, const struct Nf4Dequantize *a) {
    nf4_check(a->n);
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t r = 0; r < a->n / NF4_RUN; r++) {
        void *x = dtype_at(a->x, a->dtype, r * NF4_RUN);
        WITH_DTYPE(a->dtype, read_run((const struct Nf4Run *)a->from + r, D, x));
    }
}
