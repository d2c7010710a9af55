// Chooses where a rank computes. See rank_device.h.
//
// The tiers of a run on a GPU are in its memory, so that memory is predicted and measured: by the
// driver's count of what is in use, which includes what CUDA itself and its libraries take.
#include "zero/rank/rank_device.h"

#include "kernels/cards.h"
#include "kernels/kernels.h"
#include "kernels/speed.h"
#include "zero/comm/nccl.h"
#include "zero/offload/offload.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
    PRODUCT = 256, // rows and columns of a product that is made to load its kernels
    PRODUCT_BYTES = PRODUCT * PRODUCT * sizeof(float),
    UPDATE_ELEMENTS = 1 << 22, // 112 MiB in 16 bits, more than caches hold
};

// NCCL wants a GPU for each rank. If some ranks had a GPU of their own and some had not, all would
// go at the pace of the latter, so that is taken for a mistake.
static int refuse_gpu_count(const struct GpuAssignment *s, struct Error *e) {
    return error_set(e, -EINVAL, E_GPU_RANKS,
                     "%d ranks on this machine's %d GPUs: expected at most %d, one on each GPU, or "
                     "CUDA_VISIBLE_DEVICES=0 to put all ranks on one GPU",
                     s->node_ranks, s->gpus, s->gpus);
}

int rank_device_assign(const struct GpuAssignment *s, struct RankDeviceChoice *out,
                       struct Error *e) {
    enum RankDeviceComm shared = s->processes ? RANK_DEVICE_MPI : RANK_DEVICE_THREAD;
    *out = (struct RankDeviceChoice){s->ranks > 1 ? shared : RANK_DEVICE_SELF, 0};
    if (!s->cuda)
        return 0;
    bool own_gpus = s->gpus == 0 || s->gpus >= s->node_ranks;
    bool one_gpu = s->gpus == 1; // a process may see only its own: rank_device_gpus_apart finds out
    if (!own_gpus && !one_gpu)
        return refuse_gpu_count(s, e);
    out->gpu = own_gpus ? s->node_rank : 0;
    if (s->ranks == 1)
        return 0;
    bool may_use_nccl = own_gpus || s->processes;
    if (may_use_nccl && s->nccl)
        out->kind = RANK_DEVICE_NCCL;
    if (may_use_nccl && !s->nccl && !s->processes && s->gpus)
        return error_set(e, -ENOTSUP, E_NCCL,
                         "%d ranks on %d GPUs need NCCL: install libnccl2, or set "
                         "CUDA_VISIBLE_DEVICES=0 to put all ranks on one GPU",
                         s->ranks, s->gpus);
    return 0;
}

bool rank_device_gpus_apart(const uint64_t gpu[], int ranks) {
    for (int r = 0; r < ranks; r++) {
        if (!gpu[r])
            return false;
        for (int other = 0; other < r; other++)
            if (gpu[other] == gpu[r])
                return false;
    }
    return true;
}

// Loads all kernels now, before CUDA's first call, if ranks have cards of their own; those that
// share one wait for no kernel of another's (device.c). A launcher may show a process only its own
// card, so the machine's cards count.
static void choose_loading(const struct RankSettings *s) {
    struct Cards c = cards_count();
    bool share = s->processes ? s->node_ranks > 1 && c.machine == 1 : c.shown <= 1;
    if (s->ranks > 1 && !share)
        device_load_eagerly_cuda();
}

int rank_device_choose(const struct RankSettings *s, bool dry, struct RankDeviceChoice *out,
                       struct Error *e) {
    struct Error ignored;
    bool cuda = s->device == DEVICE_CUDA;
    if (cuda && !dry)
        choose_loading(s);
    int gpus = cuda ? device_count_cuda() : 0;
    bool elsewhere = dry && gpus != 1; // ranks that share one GPU here share it in a plan, too
    struct GpuAssignment assignment = {.cuda = cuda,
                                       .processes = s->processes,
                                       .ranks = s->ranks,
                                       .node_rank = s->processes ? s->node_rank : s->rank,
                                       .node_ranks = s->processes ? s->node_ranks : s->ranks,
                                       .gpus = elsewhere ? 0 : gpus};
    assignment.nccl = cuda && s->ranks > 1 && ((elsewhere && !gpus) || nccl_find(&ignored) == 0);
    return rank_device_assign(&assignment, out, e);
}

static int gpu_of(const struct RankSettings *s) {
    struct RankDeviceChoice choice;
    struct Error ignored;
    rank_device_choose(s, false, &choice, &ignored);
    return choice.gpu;
}

// True if `here` is true on every process. A job cannot use a GPU that only some nodes have.
static bool true_everywhere(const struct World *w, bool here) {
    struct Error none = {0};
    return !world_agree(w, here ? 0 : -ENODEV, &none);
}

// True if there is a usable GPU for this process. One that cannot be used is logged.
static bool finds_gpu(const struct RankSettings *s, const struct World *w) {
    struct RankSettings on_gpu = *s;
    struct Device *d;
    struct Error e;
    on_gpu.device = DEVICE_CUDA;
    settings_use_rank_info(&on_gpu, w);
    choose_loading(&on_gpu);
    if (device_count_cuda() == 0)
        return false;
    int err = device_open_cuda(&d, gpu_of(&on_gpu), &e);
    if (err)
        log_line(LOG_NORMAL, "--device auto chose cpu: %s", e.text);
    else
        device_close(d);
    return !err;
}

// This program's stacks are small, but a library may need more than some shells allow.
static int check_stack(struct Error *e) {
    const rlim_t least = 256 * 1024;
    struct rlimit stack;
    if (getrlimit(RLIMIT_STACK, &stack) || stack.rlim_cur >= least)
        return 0;
    return error_set(e, -EINVAL, E_STACK_LIMIT,
                     "ulimit -s %llu: the stack is too small; raise it to %llu KiB or more",
                     (unsigned long long)stack.rlim_cur / 1024, (unsigned long long)least / 1024);
}

int rank_device_join(struct RankSettings *s, struct World *w, size_t cores, struct SettingsUse *use,
                     struct Error *e) {
    size_t ranks = (size_t)s->ranks;
    int err = check_stack(e);
    if (!err)
        err = world_set_ranks(w, &ranks, flag_is_on_line(&use->said, "ranks"), e);
    err = world_agree(w, err, e); // not every process has the limits of the first one's shell
    if (err)
        return err;
    s->ranks = (int)ranks;
    use->cores = (int)world_cores(w, cores);
    use->launched = w->launched;
    bool has_gpu = true_everywhere(w, s->device == NDEVICEKIND && !s->kernels && finds_gpu(s, w));
    bool has_bf16 = true_everywhere(w, device_has_bf16_cpu(s->kernels));
    bool plans_card = use->plan && s->device_bytes && !s->kernels; // of so much memory
    use->chosen =
        (struct Chosen){.device = has_gpu || plans_card ? DEVICE_CUDA : DEVICE_CPU,
                        .dtype = {[DEVICE_CPU] = has_bf16 ? BF16 : F32, [DEVICE_CUDA] = BF16},
                        .from = has_gpu || !plans_card ? "chosen" : "for a card, by --device-mem"};
    return 0;
}

int rank_device_open(struct Device **out, const struct RankSettings *s, bool dry, struct Error *e) {
    struct RankDeviceChoice choice;
    int err = rank_device_choose(s, dry, &choice, e);
    if (!err)
        err = s->device == DEVICE_CUDA ? device_open_cuda(out, dry ? -1 : choice.gpu, e)
                                       : device_open_cpu(out, s->threads, s->kernels, e);
    if (!err && s->one_queue)
        device_join_queues(*out);
    if (err)
        return err;
    (*out)->autotune = s->autotune;
    (*out)->check_launches = s->check_launches;
    return 0;
}

int rank_device_check(const struct RankSettings *s, struct Error *e) {
    struct Device *d;
    int err = rank_device_open(&d, s, false, e);
    if (!err)
        device_close(d);
    return err;
}

// Returns how many ranks of this process have a GPU each; 1 if they share one, or there is one.
static size_t ranks_with_own_gpu(const struct RankSettings *s) {
    return !s->processes && device_count_cuda() >= s->ranks ? (size_t)s->ranks : 1;
}

// Describes a product of the run's formats, with its epilogue (fused) or without. form 0: forward;
// 1: of the inputs' gradients; 2: of the weights'.
static struct Matmul small_product(const struct RankSettings *s, int form, bool fused, char *mem,
                                   char *out) {
    enum Dtype in = s->model.dtype;
    struct Matmul m = {.m = PRODUCT,
                       .n = PRODUCT,
                       .k = PRODUCT,
                       .a = {mem, in, PRODUCT, form == 2, NULL},
                       .b = {mem, in, PRODUCT, form == 0, NULL},
                       .c = {out, form == 2 ? s->grad_dtype : in, PRODUCT, false, NULL}};
    m.bias = fused && form == 0 ? mem : NULL;
    m.dgelu = fused && form == 1 ? mem : NULL;
    m.dbias = fused && form == 2 ? out + PRODUCT_BYTES : NULL;
    return m;
}

// Loads the kernels of products: CUDA loads a library's with the first product that needs them, and
// keeps them in memory. On a device of their own these products choose nothing for the run.
static int load_products(const struct RankSettings *s, struct Error *e) {
    struct Device *d;
    int err = rank_device_open(&d, s, false, e);
    if (err)
        return err;
    size_t bytes = 3 * PRODUCT_BYTES;
    char *mem = d->ops->alloc(d, bytes); // NULL: no memory is free, which answers the question
    if (mem)
        device_zero(d, QUEUE_COMPUTE, mem, bytes);
    for (int i = 0; i < 6 && mem; i++) {
        struct Matmul m = small_product(s, i / 2, i % 2, mem, mem + PRODUCT_BYTES);
        m.work.bytes = d->kernels->matmul_work(d, &m);
        m.work.mem = d->ops->alloc(d, m.work.bytes);
        if (m.work.mem)
            d->kernels->matmul(d->queue[QUEUE_COMPUTE], &m);
        device_sync_queue(d, QUEUE_COMPUTE);
        d->ops->free(d, m.work.mem, m.work.bytes);
    }
    d->ops->free(d, mem, bytes);
    device_close(d);
    return 0;
}

int rank_device_memory(const struct RankSettings *s, struct RankDeviceMemory host, int processes,
                       struct RankDeviceMemory *out, struct Error *e) {
    int gpus = device_count_cuda();
    *out = (struct RankDeviceMemory){SIZE_MAX, 0};
    if (s->device == DEVICE_CPU)
        *out = (struct RankDeviceMemory){host.free_bytes / (size_t)processes, host.process_bytes};
    if (s->device == DEVICE_CPU || gpus == 0)
        return 0;
    int err = load_products(s, e); // from now on CUDA and its libraries are in memory
    if (err)
        return err;
    struct DeviceMemory m = device_memory_cuda(gpu_of(s));
    *out = (struct RankDeviceMemory){m.free_bytes * ranks_with_own_gpu(s),
                                     m.used_bytes * ranks_with_own_gpu(s)};
    return 0;
}

size_t rank_device_peak_bytes(const struct RankSettings *s, size_t host_bytes) {
    if (s->device == DEVICE_CPU)
        return host_bytes;
    return device_memory_cuda(gpu_of(s)).used_bytes * ranks_with_own_gpu(s);
}

// Measures copies in that queue; NQUEUE: matrix products.
static double measure_speed(const struct RankSettings *s, enum Queue copies) {
    struct Device *d;
    struct Error ignored;
    if (rank_device_open(&d, s, false, &ignored))
        return 0;
    double speed =
        copies == NQUEUE ? matmul_speed_of_light(d, s->model.dtype) : copy_speed(d, copies);
    device_close(d);
    return speed;
}

double rank_device_measure_speed(void *settings) {
    return measure_speed(settings, NQUEUE);
}
double rank_device_measure_in(void *settings) {
    return measure_speed(settings, QUEUE_IN);
}
double rank_device_measure_out(void *settings) {
    return measure_speed(settings, QUEUE_OUT);
}

static char *describe_cpu(const struct RankSettings *s) {
    struct Device *d;
    struct Error ignored;
    bool opened = device_open_cpu(&d, s->threads, s->kernels, &ignored) == 0;
    const char *table = opened ? d->kernels->name : NULL;
    if (table)
        device_close(d);
    return base_format("%d threads, %s", s->threads, table ? table : "?");
}

char *rank_device_speed_name(const struct RankSettings *s) {
    char *where = s->device == DEVICE_CPU ? describe_cpu(s) : device_name_cuda(gpu_of(s));
    char *name = base_format("matmul FLOP/s, %s, %s", dtype_name(s->model.dtype), where);
    free(where);
    return name;
}

char *rank_device_copy_name(const struct RankSettings *s, const char *direction) {
    char *where = s->device == DEVICE_CPU ? NULL : device_name_cuda(gpu_of(s));
    char *name = base_format("copy B/s, %s, %s", direction, where ? where : "cpu");
    free(where);
    return name;
}

// ---- updates ----

struct AdamW rank_device_update(const struct RankSettings *s, size_t n) {
    static char not_null; // only its being not NULL matters
    bool weights_are_masters = s->model.dtype == F32 || s->master_format == MASTER_BF16;
    return (struct AdamW){.n = n,
                          .grad_dtype = s->grad_dtype,
                          .param_dtype = s->model.dtype,
                          .moments_dtype = s->moments_dtype,
                          .master_format = s->master_format,
                          .param = weights_are_masters ? NULL : &not_null};
}

// A measurement holds for all updates of as many elements or more, up to the next power of two, and
// those larger than caches are all alike. From a disk come pieces, which caches may hold.
struct UpdateBenchmark rank_device_update_of(const struct RankSettings *s, size_t n, bool host) {
    size_t most = 1, limit = host && s->opt_tier == TIER_NVME ? HOST_PIECE : UPDATE_ELEMENTS;
    while (2 * most <= n && most < limit)
        most *= 2;
    return (struct UpdateBenchmark){s, most, host};
}

double rank_device_measure_update(void *update) {
    const struct UpdateBenchmark *u = update;
    struct AdamW like = rank_device_update(u->settings, u->n);
    struct Device *d;
    struct Error ignored;
    if (u->host ? device_open_cpu(&d, u->settings->threads, u->settings->kernels, &ignored)
                : rank_device_open(&d, u->settings, false, &ignored))
        return 0;
    double speed = update_speed(d, &like);
    device_close(d);
    return speed;
}

char *rank_device_update_name(const struct UpdateBenchmark *u) {
    const struct RankSettings *s = u->settings;
    bool cpu = u->host || s->device == DEVICE_CPU;
    char *where = cpu ? describe_cpu(s) : device_name_cuda(gpu_of(s));
    char *name =
        base_format("AdamW B/s, %s, gradients %s, moments %s, master %s, of %zu, %s",
                    dtype_name(s->model.dtype), dtype_name(s->grad_dtype),
                    dtype_name(s->moments_dtype), master_name(s->master_format), u->n, where);
    free(where);
    return name;
}
