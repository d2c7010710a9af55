// Adds adapters to the weights that they are for: see merge.h.
#include "zero/weights/merge.h"

#include "model/adapter.h"
#include "zero/state.h"

#include <stdlib.h>
#include <string.h>

void merge_open(struct Merge *m, struct Zero *z) {
    size_t most = params_largest(z->params, GROUP_ADAPTER);
    *m = (struct Merge){.group = -1};
    if (!most)
        return;
    m->own = base_alloc(most / (size_t)z->shard_group->size * sizeof *m->own);
    m->whole = base_alloc(most * sizeof *m->whole);
}

void merge_close(struct Merge *m) {
    free(m->own);
    free(m->whole);
    *m = (struct Merge){0};
}

static void read_own(struct Merge *m, struct Zero *z, int adapter) {
    size_t shard = zero_shard_numel(z, adapter), begin = shard * (size_t)z->shard_group->rank;
    float *chunk = device_alloc_host(z->device, STATE_CHUNK * sizeof *chunk);
    for (size_t n, i = 0; i < shard; i += n) {
        n = size_min(STATE_CHUNK, shard - i);
        zero_read_state(z, adapter, STATE_MASTER, begin + i - zero_owned_begin(z, adapter), n,
                        chunk);
        memcpy(m->own + i, chunk, n * sizeof *chunk);
    }
    device_free_host(z->device, chunk);
}

void merge_gather(struct Merge *m, struct Zero *z, int g) {
    int unit = z->params->group[g].first_unit, adapter = z->params->unit[unit].adapter;
    m->group = -1;
    if (adapter < 0 || z->params->group[g].kind != GROUP_BLOCK)
        return;
    read_own(m, z, adapter);
    comm_gather_host(z->shard_group, m->whole, m->own,
                     zero_shard_numel(z, adapter) * sizeof *m->own);
    m->group = adapter;
}

// Adds s B A to columns [col, col + n) of one row of a target.
static void add_row(const float *b, const float *a, size_t rank, size_t cols, size_t col, size_t n,
                    float s, float *values) {
    enum { PIECE = 256 };
    float sum[PIECE];
    for (size_t count, i = 0; i < n; i += count) {
        count = size_min(PIECE, n - i);
        memset(sum, 0, sizeof sum);
        for (size_t k = 0; k < rank; k++)
            for (size_t j = 0; j < count; j++)
                sum[j] += b[k] * a[k * cols + col + i + j];
        for (size_t j = 0; j < count; j++)
            values[i + j] += s * sum[j];
    }
}

void merge_add(const struct Merge *m, const struct Zero *z, int g, const struct Param *param,
               size_t at, size_t n, float *values) {
    const struct Params *p = z->params;
    struct ModelConfig part = model_config_part(&p->config, p->tp_rank, p->tp_size);
    enum LoraTarget target[LORA_BESIDE];
    if (m->group < 0)
        return;
    const struct Param *adapter = p->group[m->group].param;
    float s = (float)(part.lora.alpha / (double)part.lora.rank);
    int product = (int)(param - p->group[g].param), count = 0;
    if (product <= BLOCK_OUT_W)
        count = adapter_targets(&part, (enum BlockParam)product, target);
    for (int i = 0; i < count; i++) {
        struct AdapterTarget t = adapter_target(&part, target[i]);
        const float *A = m->whole + adapter[target[i]].offset;
        const float *B = m->whole + adapter[ADAPTER_B + target[i]].offset;
        size_t first = param->offset + t.first * t.in, end = first + t.out * t.in;
        size_t low = size_max(at, first), high = size_min(at + n, end);
        for (size_t some; low < high; low += some) {
            size_t row = (low - first) / t.in, col = (low - first) % t.in;
            some = size_min(t.in - col, high - low);
            add_row(B + row * part.lora.rank, A, part.lora.rank, t.in, col, some, s,
                    values + (low - at));
        }
    }
}
