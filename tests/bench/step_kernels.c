// A training step kernel by kernel: what each took on this GPU, or what each takes on paper.
//
//   make MODE=gpu build/gpu/tests/step_kernels
//   build/gpu/tests/step_kernels measure MODEL BATCH STEPS [--autotune]
//   build/gpu/tests/step_kernels budget MODEL BATCH [--gpu h100|h200|a100] [--hopper-attention]
//   build/gpu/tests/step_kernels limits
//
// `measure` opens a rank as ./train does, in bf16 on random tokens, with the least --recompute that
// fits the GPU. Its first line is the speed of a step that nobody traces; then come the kernels of
// a traced one, each with its time, its launches, and the GB/s or TFLOP/s that its mathematics
// means (kernels/cost.h), whichever is nearer to its ceiling: a large copy and a large product of
// this run. What the other queues did beside it comes last. Without arguments it is measure gpt2 32
// 40. In the simulator the ceilings are taken of small operands, as no time means anything there.
//
// `budget` and `limits` need no GPU. They print what docs/gpu.md shows under "A budget on paper".
//
// step_measure.c and step_budget.c do the work.
#include "tests/bench/step_kernels.h"

#include "tests/cusim/sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COPY_BYTES = 512 << 20, PRODUCT_SIDE = 8192, SMALL_BYTES = 1 << 16, SMALL_SIDE = 32 };
static const double SPARE_BYTES = 512e6; // for code that CUDA and cuBLAS load as they go

static int measure(const char *model, const char *batch, const char *count, bool autotune,
                   struct Error *e) {
    struct RankSettings s;
    struct Device *d;
    struct StepMeasured m = {0};
    size_t peak;
    char *end;
    unsigned long steps = strtoul(count, &end, 10);
    if (*end || steps < 4 || steps > 100000)
        return error_set(e, -EINVAL, E_FLAG_NUMBER, "measure: %s steps, expected 4 to 100000",
                         count);
    int err = step_settings(model, batch, &s, e);
    if (!err)
        err = device_open_cuda(&d, 0, e);
    if (err)
        return err;
    d->autotune = autotune;
    bool real = sim_is_real();
    struct StepCeilings ceilings =
        step_ceilings(d, real ? COPY_BYTES : SMALL_BYTES, real ? PRODUCT_SIDE : SMALL_SIDE);
    device_close(d);
    s.autotune = autotune;
    err = step_fit(&s, (double)device_memory_cuda(0).free_bytes - SPARE_BYTES, &peak, e);
    if (!err)
        err = step_measure(&s, steps, &m, e);
    if (!err)
        step_print(stdout, model, &s, &m, &ceilings);
    free(m.products);
    return err;
}

int main(int argc, char **argv) {
    struct Error e = {0};
    bool autotune = argc == 6 && !strcmp(argv[5], "--autotune");
    int err = 0;
    if (argc == 1)
        err = measure("gpt2", "32", "40", false, &e);
    else if ((argc == 5 || autotune) && !strcmp(argv[1], "measure"))
        err = measure(argv[2], argv[3], argv[4], autotune, &e);
    else if (argc > 1 && !strcmp(argv[1], "budget"))
        err = step_budget(stdout, argc - 2, argv + 2, &e);
    else if (argc == 2 && !strcmp(argv[1], "limits"))
        step_limits(stdout);
    else
        err = error_set(&e, -EINVAL, E_FLAG_STRAY_WORD,
                        "expected measure MODEL BATCH STEPS [--autotune], or budget MODEL BATCH "
                        "[--gpu h100|h200|a100] [--hopper-attention], or limits");
    if (err)
        fprintf(stderr, "step_kernels: %s\n", e.text);
    return err ? 2 : 0;
}
