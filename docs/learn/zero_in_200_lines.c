// All stages of ZeRO without overlap and offload: what ./train does, one thing after the other.
//
//     make zero_in_200_lines && build/release/zero_in_200_lines STAGE RANKS STEPS [MICRO_BATCHES]
//
// Each rank is a thread, and trains the same model on other tokens of README.md. Of what its stage
// shards it keeps 1/N of each group: of what a block uses, or the embedding and head together. Read
// on to main. zero/step.c does the same overlapped, to the last bit (tests/zero/test_learn.sh).
#include "data/text/data.h"
#include "model/model.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { L = 2, NH = 4, C = 48, V = 256, B = 2, T = 64 }; // layers, heads, channels, bytes, batch
enum { GROUPS = L + 1, SEED = 1, MAX_RANKS = 16 };
enum Kind { OPTIMIZER, GRADIENT, WEIGHTS, KINDS }; // 8 bytes a parameter (AdamW's m, v), 4 and 4
static const bool in_shards[][KINDS] = {
    {false, false, false}, // stage 0: ranks keep all, and all make the same update
    {true, false, false},  // 1: each updates its shard of the weights, and gathers the others'
    {true, true, false},   // 2: for which it needs no gradient but that of its shard
    {true, true, true},    // 3: and weights are whole only while a unit computes with them
};

struct Rank {
    struct Rank *all; // [ranks]
    size_t rank, ranks, steps, micro, micro_batches, hash;
    const bool *sharded; // [KINDS], its stage's row
    struct Data *data;
    pthread_barrier_t *barrier;
    pthread_t thread;
    struct Params params; // units, from embedding to head, and the groups that they use
    struct Model model;
    struct Acts acts;
    size_t n[GROUPS], begin[GROUPS]; // elements of its shard of a group, and the first one
    float *state[GROUPS][KINDS];     // of a group the whole, or this rank's shard
    void *w[GROUPS];                 // whole weights, for the model,
    struct Grad dw[GROUPS];          // and whole gradients, from it
    const float *shown;              // what other ranks read: in a collective,
    double loss, squares[GROUPS];    // and at the end of a step
};

static void must(int err, const struct Error *e) {
    if (err)
        base_give_up(e->id, "%s", e->text);
}

// Where this rank keeps element i of a group.
static float *at(const struct Rank *r, int g, enum Kind kind, size_t i) {
    return r->state[g][kind] + i - (r->sharded[kind] ? r->begin[g] : 0);
}

// Each rank has a shard of n elements; then all have all shards.
static void all_gather(struct Rank *r, float *whole, const float *shard, size_t n) {
    r->shown = shard;
    pthread_barrier_wait(r->barrier);
    for (size_t from = 0; from < r->ranks; from++)
        if (r->all[from].shown != whole + from * n)
            memcpy(whole + from * n, r->all[from].shown, n * sizeof *whole);
    pthread_barrier_wait(r->barrier); // all have read: what was shown may change
}

// Each rank has a whole; then each has, or adds to, its shard of their sum. That is made in the
// order of ranks: in another order it would be rounded to other bits.
static void reduce_scatter(struct Rank *r, float *shard, const float *whole, size_t n, bool add) {
    r->shown = whole;
    pthread_barrier_wait(r->barrier);
    for (size_t i = 0; i < n; i++) {
        float sum = add ? shard[i] : 0;
        for (size_t from = 0; from < r->ranks; from++)
            sum += r->all[from].shown[r->rank * n + i];
        shard[i] = sum;
    }
    pthread_barrier_wait(r->barrier);
}

// A unit's pass. A whole gradient is summed over ranks in the last micro-batch, a shard in each.
static void run_unit(struct Rank *r, int u, bool backward) {
    const struct Group *group = &r->params.group[r->params.unit[u].group];
    int g = group->number;
    size_t n = r->n[g], bytes = group->padded * sizeof(float);
    r->w[g] = r->sharded[WEIGHTS] ? base_alloc(bytes) : r->state[g][WEIGHTS];
    if (r->sharded[WEIGHTS])
        all_gather(r, r->w[g], r->state[g][WEIGHTS], n);
    if (backward && group->last_unit == u) // the embedding adds to what the head has begun
        r->dw[g].mem = r->sharded[GRADIENT] ? base_alloc_zeroed(bytes) : r->state[g][GRADIENT];
    r->dw[g].accumulate = !r->sharded[GRADIENT] && r->micro > 0;
    if (backward)
        unit_backward(&r->model, u, r->w, r->dw, &r->acts);
    else
        unit_forward(&r->model, u, r->w, &r->acts);
    device_sync_queue(r->model.device, QUEUE_COMPUTE);
    free(r->sharded[WEIGHTS] ? r->w[g] : NULL);
    if (!backward || group->first_unit != u)
        return;
    bool last = r->micro + 1 == r->micro_batches;
    float *whole = r->dw[g].mem, *shard = at(r, g, GRADIENT, r->begin[g]);
    if (r->sharded[GRADIENT] || last)
        reduce_scatter(r, shard, whole, n, r->sharded[GRADIENT] && r->micro > 0);
    if (last && !r->sharded[OPTIMIZER]) // stage 0: both together are an all_reduce
        all_gather(r, whole, shard, n);
    for (size_t i = r->squares[g] = 0; i < n; i++)
        r->squares[g] += pow(shard[i], 2);
    free(r->sharded[GRADIENT] ? whole : NULL);
}

static void update(struct Rank *r, int g, const struct StepState *settings) {
    size_t whole = r->params.group[g].padded, decay_end = r->params.group[g].decay_end;
    size_t n = r->sharded[OPTIMIZER] ? r->n[g] : whole, i = r->sharded[OPTIMIZER] ? r->begin[g] : 0;
    struct AdamW a = {.n = n, .m = r->state[g][OPTIMIZER], .state = settings};
    a.v = r->state[g][OPTIMIZER] + n, a.n_decay = size_min(n, decay_end - size_min(i, decay_end));
    a.master = at(r, g, WEIGHTS, i), a.grad = at(r, g, GRADIENT, i);
    r->model.device->kernels->adamw(r->model.device->queue[QUEUE_COMPUTE], &a);
    device_sync_queue(r->model.device, QUEUE_COMPUTE);
    if (r->sharded[OPTIMIZER] && !r->sharded[WEIGHTS])
        all_gather(r, r->state[g][WEIGHTS], a.master, n);
}

static void train_step(struct Rank *r, size_t step) {
    int32_t tokens[B * T], targets[B * T];
    struct Error e;
    r->acts.tokens = tokens, r->acts.targets = targets;
    for (r->micro = 0; r->micro < r->micro_batches; r->micro++) {
        size_t i = (((step - 1) * r->micro_batches + r->micro) * r->ranks + r->rank) * B;
        must(data_train_batch(r->data, i, B, &(struct Batch){tokens, targets, NULL}, &e), &e);
        r->acts.accumulate_loss = r->micro > 0;
        for (int u = 0; u < r->params.nunit; u++)
            run_unit(r, u, false);
        for (int u = r->params.nunit - 1; u >= 0; u--)
            run_unit(r, u, true);
    }
    double loss = 0, squares = 0;
    pthread_barrier_wait(r->barrier);
    for (size_t from = 0; from < r->ranks; from++)
        loss += r->all[from].loss / (r->ranks * r->micro_batches * B * T);
    for (size_t i = 0; i < r->ranks * GROUPS; i++)
        squares += r->all[i / GROUPS].squares[i % GROUPS];
    pthread_barrier_wait(r->barrier);
    float norm = sqrt(squares), clip = norm > 1 ? 1 / norm : 1;
    struct StepState s = {6e-4f, 0.9f, 0.95f, 1e-8f, .weight_decay = 0.1f, .grad_scale = clip};
    s.correction = (struct BiasCorrection){1 - pow(0.9, step), 1 - pow(0.95, step)};
    for (int g = 0; g < GROUPS; g++)
        update(r, g, &s);
    if (r->rank == 0)
        printf("step %2zu/%zu  loss %.4f  norm %.2f\n", step, r->steps, loss, norm);
}

static void *run_rank(void *rank) {
    struct Rank *r = rank;
    struct Device *d;
    struct Error e;
    struct ModelConfig c = {.layers = L, .heads = NH, .channels = C, .seq_len = T, .vocab = V};
    must(device_open_cpu(&d, 1, "oracle", &e) || model_config_finish(&c, &e), &e);
    params_layout(&c, r->ranks, 0, 1, &r->params);
    struct Tier tier = {.kind = TIER_DEVICE, .device = d, .capacity = SIZE_MAX};
    struct ActsSpec s = {.b = B, .t = T, .slots = L, .piece_bytes = 1 << 20, .piece_rows = 1};
    r->model = (struct Model){.config = c, .device = d, .params = &r->params};
    must(acts_open(&r->acts, &c, &s, &tier, &e) || model_open(&r->model, &r->acts, &tier, &e), &e);
    r->acts.loss_sum = &r->loss, r->acts.loss_scale = (const float[]){1};
    r->acts.dloss = 1.0 / (r->ranks * r->micro_batches * B * T);
    for (int g = 0; g < GROUPS; g++) {
        size_t whole = r->params.group[g].padded, n = r->n[g] = whole / r->ranks;
        size_t begin = r->begin[g] = r->rank * n, bytes[KINDS] = {8, 4, 4};
        for (enum Kind kind = 0; kind < KINDS; kind++)
            r->state[g][kind] = base_alloc_zeroed(bytes[kind] * (r->sharded[kind] ? n : whole));
        size_t i = r->sharded[WEIGHTS] ? begin : 0, kept = r->sharded[WEIGHTS] ? n : whole;
        params_init(&r->params, g, i, i + kept, SEED, d, r->state[g][WEIGHTS]);
    }
    device_sync_queue(d, QUEUE_COMPUTE);
    for (size_t step = 1; step <= r->steps; step++)
        train_step(r, step);
    for (int g = 0; g < GROUPS; g++)
        r->hash += params_hash(&r->params, g, r->begin[g], r->begin[g] + r->n[g],
                               at(r, g, WEIGHTS, r->begin[g]));
    return NULL;
}

int main(int argc, char **argv) {
    size_t said[] = {4, 0, 0, 1}, hash = 0; // stage, ranks, steps, micro-batches
    for (int i = 0; i < 4 && i + 1 < argc; i++)
        said[i] = strtoul(argv[i + 1], NULL, 10);
    if (said[0] > 3 || said[1] < 1 || said[1] > MAX_RANKS || said[3] < 1)
        return fprintf(stderr, "STAGE 0..3, RANKS 1..16, STEPS, MICRO_BATCHES from 1 on\n"), 2;
    struct Rank ranks[MAX_RANKS], r = {.all = ranks, .ranks = said[1], .steps = said[2]};
    r.sharded = in_shards[said[0]], r.micro_batches = said[3];
    struct DataSpec text = {"README.md", .tokenizer = "byte", .seq_len = T, .seed = SEED};
    pthread_barrier_t barrier;
    struct Error e;
    must(data_open(&r.data, &text, &e), &e);
    pthread_barrier_init(r.barrier = &barrier, NULL, r.ranks);
    for (; r.rank < r.ranks; r.rank++) {
        ranks[r.rank] = r;
        pthread_create(&ranks[r.rank].thread, NULL, run_rank, &ranks[r.rank]);
    }
    for (size_t i = 0; i < r.ranks; hash += ranks[i++].hash)
        pthread_join(ranks[i].thread, NULL);
    printf("weights hash: %016zx\n", hash);
}
