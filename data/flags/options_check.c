// Flags against each other: what no single row of the table in options.c can say.
//
// Each refusal is one line: the flag, its value, and what would be right.
#include "data/file.h"
#include "data/flags/options.h"

#include <errno.h>

static bool is_power_of_2(size_t n) {
    return n && !(n & (n - 1));
}

// What fp16 needs, and what nothing else may have: without a loss scale its gradients are lost.
static int check_fp16(const struct Options *o, struct Error *e) {
    static const char *const words[] = {"fp32", "bf16", "fp16"};
    bool fp16 = o->dtype == DTYPE_FP16;
    if (!fp16 && o->loss_scale_given)
        return error_set(e, -EINVAL, "--%s: only --dtype fp16 has a loss scale, not %s",
                         o->loss_scale_given, words[o->dtype]);
    if (o->grad_dtype == (fp16 ? GRAD_BF16 : GRAD_FP16))
        return error_set(e, -EINVAL, "--grad-dtype %s: with --dtype %s expected auto, fp32%s",
                         words[o->grad_dtype - GRAD_FP32], words[o->dtype],
                         fp16 ? " or fp16" : " or bf16");
    if (!is_power_of_2(o->loss_scale))
        return error_set(e, -EINVAL, "--loss-scale %zu: expected a power of two", o->loss_scale);
    if (!is_power_of_2(o->loss_scale_min) || o->loss_scale_min > o->loss_scale)
        return error_set(e, -EINVAL,
                         "--loss-scale-min %zu: expected a power of two, at most --loss-scale %zu",
                         o->loss_scale_min, o->loss_scale);
    return 0;
}

// What is offloaded needs a place, and what only offload has needs something offloaded.
static int check_offload(const struct Options *o, struct Error *e) {
    enum { NVME = 2 };
    bool nvme =
        o->offload_optimizer == NVME || o->offload_param == NVME || o->offload_activations == NVME;
    if (nvme && !o->nvme_path && !o->plan)
        return error_set(e, -EINVAL,
                         "--nvme-path is missing: expected a folder on an NVMe disk for what is "
                         "offloaded to nvme");
    if (!nvme && o->nvme_given)
        return error_set(e, -EINVAL,
                         "--%s: nothing is offloaded to nvme: expected --offload-optimizer nvme, "
                         "--offload-param nvme or --offload-activations nvme",
                         o->nvme_given);
    if (!o->offload_optimizer && (o->delay_update || (o->offload_given && o->offload_ratio < 1)))
        return error_set(e, -EINVAL, "%s: expected --offload-optimizer cpu or nvme, not none",
                         o->delay_update ? "--delay-update" : "--offload-ratio");
    if (o->delay_update && o->offload_ratio < 1)
        return error_set(
            e, -EINVAL,
            "--offload-ratio %g: expected 1 with --delay-update, under which no update "
            "is made by the device",
            o->offload_ratio);
    if (!o->delay_update && o->delay_after)
        return error_set(e, -EINVAL, "--delay-after %zu: expected --delay-update, too",
                         o->delay_after);
    if (o->host_mem && o->offload_given && !o->offload_optimizer && !o->offload_param &&
        !o->offload_activations)
        return error_set(e, -EINVAL,
                         "--host-mem %zu: nothing is offloaded: expected --offload-optimizer, "
                         "--offload-param or --offload-activations, too",
                         o->host_mem);
    return 0;
}

int options_check(const struct Options *o, struct Error *e) {
    if (!o->data || !*o->data)
        return error_set(e, -EINVAL,
                         "--data is missing: expected a text file, a folder, token shards, a URL, "
                         "tinyshakespeare, fineweb10B or random");
    if (o->global_batch % (o->batch * o->ranks))
        return error_set(e, -EINVAL,
                         "--global-batch %zu: expected a multiple of %zu, --batch %zu on each of "
                         "--ranks %zu",
                         o->global_batch, o->batch * o->ranks, o->batch, o->ranks);
    if ((o->json || o->params) && !o->plan)
        return error_set(e, -EINVAL, "%s is a way of planning: add --plan",
                         o->params ? "--params" : "--json");
    if (o->sample_only && !o->resume)
        return error_set(e, -EINVAL, "--sample-only needs a checkpoint: add --resume auto");
    if (o->clip > 0 && o->clip < 1e-30)
        return error_set(e, -EINVAL, "--clip %g: expected 0, for none, or at least 1e-30", o->clip);
    if (o->min_lr > o->lr)
        return error_set(e, -EINVAL, "--min-lr %g: expected at most --lr %g", o->min_lr, o->lr);
    if (o->trace && o->sample_only)
        return error_set(e, -EINVAL, "--trace %s: a sample makes no step", o->trace);
    if (o->trace && file_check_place(o->trace, "--trace", e))
        return -EINVAL;
    if (o->warmup > o->steps)
        return error_set(e, -EINVAL, "--warmup %zu: expected at most --steps %zu", o->warmup,
                         o->steps);
    if (o->device && o->kernels)
        return error_set(e, -EINVAL, "--kernels %s: those are the CPU's, and --device is cuda",
                         o->kernels);
    if (!o->device && (o->reduce || o->autotune || o->check_launches))
        return error_set(e, -EINVAL, "%s is for GPUs: add --device cuda",
                         o->reduce     ? "--reduce native"
                         : o->autotune ? "--autotune"
                                       : "--check-launches");
    int err = check_offload(o, e);
    return err ? err : check_fp16(o, e);
}
