// Whose rates a plan has for a GPU that is not here, where no --cluster names one.
//
// The files of docs/clusters whose cards can run this program are in it: all but the V100's. Of
// those that have the memory that is planned for it is the smallest; of several such the slowest,
// so that its times are seldom too short. A plan says whose they are: they rank candidates, and are
// no promise.
//
// Called by predict.c. Read next: cluster.h.
#include "zero/plan/cluster.h"

#include <cjson/cJSON.h>

// The text of each file, as it stood there when this was compiled.
#define FILES(X) X(a100) X(a10g) X(a4000) X(a6000) X(h100) X(l40s) X(rtx4090)
#define NAME_OF(file) "docs/clusters/" #file ".json"
#define INCLUDE(file)                                                                              \
    __asm__(".pushsection .rodata\n"                                                               \
            "card_" #file ": .incbin \"" NAME_OF(file) "\"\n"                                      \
                                                       ".byte 0\n"                                 \
                                                       ".popsection\n");                           \
    extern const char card_##file[] __attribute__((visibility("hidden")));
FILES(INCLUDE)

static const struct {
    const char *name, *text;
} files[] = {
#define X(file) {NAME_OF(file), card_##file},
    FILES(X)
#undef X
};
enum { NFILES = sizeof files / sizeof files[0] };

// True if a card goes before `best`, for so many bytes.
static bool is_better(const struct Cluster *c, const struct Cluster *best, size_t bytes) {
    bool holds = c->device_bytes >= bytes, held = best->device_bytes >= bytes;
    if (!best->nodes)
        return true;
    if (holds != held)
        return holds;
    if (c->device_bytes != best->device_bytes) // the smallest that holds them, else the largest
        return (c->device_bytes < best->device_bytes) == holds;
    return c->matmul < best->matmul;
}

const char *card_choose(size_t device_bytes, struct Cluster *out) {
    const char *name = NULL;
    size_t bytes = device_bytes ? device_bytes : SIZE_MAX;
    *out = (struct Cluster){.nodes = 0};
    for (int i = 0; i < NFILES; i++) {
        struct Cluster c;
        struct Error e;
        CHECK(!cluster_read(files[i].name, cJSON_Parse(files[i].text), &c, &e), "%s", e.text);
        if (is_better(&c, out, bytes)) {
            *out = c;
            name = files[i].name;
        }
    }
    return name;
}

// The files' products are of 16 bits; those of fp32 are between half as fast and a sixteenth.
static const double FP32_PRODUCTS = 1.0 / 6;

// Returns the bytes per second that a rank sends: over the intra-node link, or its share of the
// inter-node link if ranks are on several nodes and that is slower.
static double send_rate(const struct Cluster *c, size_t ranks) {
    double share = c->far.rate / (double)c->node_gpus;
    return ranks <= c->node_gpus || share > c->near.rate ? c->near.rate : share;
}

void card_assume(const struct RankSettings *s, struct Rates *rates, struct Speeds *speeds) {
    struct Cluster c;
    const char *file = card_choose(s->device_bytes, &c);
    size_t ranks = (size_t)s->ranks;
    struct Speeds assumed = {.flops = c.matmul,
                             .in = c.in,
                             .out = c.out,
                             .read = speeds->read > 0 ? speeds->read : c.read,
                             .written = speeds->written > 0 ? speeds->written : c.written,
                             .update = c.memory,
                             .host_update = c.host_update / (double)size_min(ranks, c.node_gpus),
                             .sent = ranks > 1 ? send_rate(&c, ranks) : 0};
    *rates = (struct Rates){.kernels = cluster_rates(&c, s->model.head_size), .sent = assumed.sent};
    const int products[] = {KERNEL_matmul, KERNEL_attention_forward, KERNEL_attention_backward};
    for (int i = 0; i < 3 && s->model.dtype == F32; i++)
        rates->kernels.of[products[i]] *= FP32_PRODUCTS;
    assumed.flops *= s->model.dtype == F32 ? FP32_PRODUCTS : 1;
    snprintf(assumed.whose, sizeof assumed.whose, "%s (%s)", c.name, file);
    *speeds = assumed;
}
