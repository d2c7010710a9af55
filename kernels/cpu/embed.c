// The embedding: a row of wte for the token plus, if positions are learned, a row of wpe for the
// position.
//
// Backward is the reverse: the gradients of all occurrences of a token in the batch are summed into
// the token's row. Two threads must not write one row, and the sum must have one order; so the
// occurrences of a token are chained first (the first one, and from each the next), and the thread
// that takes a token walks its whole chain. Its sum stays in registers and is rounded once. If
// positions restart with each document of a packed batch, they are chained in the same way; else a
// position occurs once in each sequence, at the same offset.
//
// If the vocabulary is split over ranks, each looks up and chains only its own tokens.
//
// Called through the kernel table. Read next: classifier.c.
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/vec_array.h"

VEC_INLINE void embed_forward(struct Cpu *cpu, const struct EmbedForward *a, enum Dtype d) {
    size_t c = a->c;
#pragma omp parallel for schedule(static) num_threads(cpu->device.threads)
    for (size_t row = 0; row < a->b * a->t; row++) {
        size_t from = token_row(a->tokens[row], a->first_token);
        bool known = from < a->v;
        const void *wte = known ? dtype_at(a->wte, d, from * c) : NULL;
        void *out = dtype_at(a->out, d, row * c);
        if (!a->wpe) {
            if (known)
                memcpy(out, wte, c * dtype_size(d));
            else
                memset(out, 0, c * dtype_size(d));
            continue;
        }
        const void *wpe = dtype_at(a->wpe, d, row_position(a->starts, row, a->t) * c);
        for (size_t i = 0; i < c; i += VEC_LANES) {
            Vec token = known ? vec_read(wte, d, i, c) : vec_set(0);
            vec_write(out, d, i, c, token + vec_read(wpe, d, i, c));
        }
    }
}

void CPU_NAME(embed_forward)(struct Cpu *cpu, const struct EmbedForward *a) {
    WITH_DTYPE(a->dtype, embed_forward(cpu, a, D));
}

enum { NO_INDEX = -1 };

// Returns the dwte row of the token at a batch index; v or more: it has none.
static size_t embed_row(const struct EmbedBackward *a, size_t index) {
    return token_row(a->tokens[index], a->first_token);
}

// Chains the batch indices of each row's token in ascending order: first[row], then next[index], up
// to NO_INDEX. Writes first[row] only for tokens that occur; the others stay undefined.
static void embed_chain_tokens(const struct EmbedBackward *a, int32_t *first, int32_t *next) {
    size_t count = a->b * a->t;
    for (size_t i = 0; i < count; i++)
        if (embed_row(a, i) < a->v)
            first[embed_row(a, i)] = NO_INDEX;
    for (size_t i = count; i-- > 0;) {
        size_t row = embed_row(a, i);
        if (row >= a->v)
            continue;
        next[i] = first[row];
        first[row] = (int32_t)i;
    }
}

// Adds to dwte: VEC_LANES columns from i on of the row of the token that first occurs at `index`.
VEC_INLINE void embed_add_token(const struct EmbedBackward *a, enum Dtype d, const int32_t *next,
                                int32_t index, size_t i) {
    size_t c = a->c, at = embed_row(a, (size_t)index) * c;
    Vec sum = vec_read(a->dwte, a->grad_dtype, at + i, at + c);
    for (; index != NO_INDEX; index = next[index]) {
        size_t row = (size_t)index * c;
        sum += vec_read(a->dout, d, row + i, row + c);
    }
    vec_write(a->dwte, a->grad_dtype, at + i, at + c, sum);
}

// Chains the batch indices of each of the T positions likewise: first[position], then next[index].
static void embed_chain_positions(const struct EmbedBackward *a, int32_t *first, int32_t *next) {
    for (size_t i = 0; i < a->t; i++)
        first[i] = NO_INDEX;
    for (size_t i = a->b * a->t; i-- > 0;) {
        size_t position = row_position(a->starts, i, a->t);
        next[i] = first[position];
        first[position] = (int32_t)i;
    }
}

// Sums dwpe's row of position t, which first occurs at `index`, and next at next[index] or, without
// a chain (next NULL), T later.
VEC_INLINE void embed_backward_position(const struct EmbedBackward *a, enum Dtype d, size_t t,
                                        int32_t index, const int32_t *next) {
    size_t c = a->c, at = t * c, count = a->b * a->t;
    for (size_t i = 0; i < c; i += VEC_LANES) {
        Vec sum = a->accumulate ? vec_read(a->dwpe, a->grad_dtype, at + i, at + c) : vec_set(0);
        for (size_t p = (size_t)index; p < count;) {
            sum += vec_read(a->dout, d, p * c + i, p * c + c);
            p = next ? (size_t)next[p] : p + a->t; // NO_INDEX is the largest
        }
        vec_write(a->dwpe, a->grad_dtype, at + i, at + c, sum);
    }
}

VEC_INLINE void embed_backward(struct Cpu *cpu, const struct EmbedBackward *a, enum Dtype d) {
    int32_t *next = a->work.mem, *first = next + a->b * a->t;
    int32_t *next_position = first + a->v, *first_position = next_position + a->b * a->t;
    bool restart = a->dwpe && a->starts;
    embed_chain_tokens(a, first, next);
    if (restart)
        embed_chain_positions(a, first_position, next_position);
#pragma omp parallel num_threads(cpu->device.threads)
    {
#pragma omp for schedule(dynamic, 8) nowait
        for (size_t index = 0; index < a->b * a->t; index++) {
            size_t row = embed_row(a, index);
            if (row < a->v && first[row] == (int32_t)index)
                for (size_t i = 0; i < a->c; i += VEC_LANES)
                    embed_add_token(a, d, next, (int32_t)index, i);
        }
#pragma omp for schedule(static)
        for (size_t t = 0; t < (a->dwpe ? a->t : 0); t++)
            embed_backward_position(a, d, t, restart ? first_position[t] : (int32_t)t,
                                    restart ? next_position : NULL);
    }
}

void CPU_NAME(embed_backward)(struct Cpu *cpu, const struct EmbedBackward *a) {
    WITH_DTYPE(a->dtype, embed_backward(cpu, a, D));
}

size_t CPU_NAME(embed_backward_work)(struct Cpu *cpu, const struct EmbedBackward *a) {
    (void)cpu;
    size_t positions = a->dwpe && a->starts ? a->b * a->t + a->t : 0;
    return (a->b * a->t + a->v + positions) * sizeof(int32_t);
}
