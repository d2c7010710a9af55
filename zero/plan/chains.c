// Prints how one group's bytes travel in a step: --plan --show-chain GROUP.
//
// A rehearsal (rehearse.h) tells of each hop what it sends, moves and computes; those of one group
// are printed in the order of its chains (zero/hop.h), with the queue that they are in.
#include "zero/plan/table.h"

#include "zero/comm/grid.h"

#include <errno.h>
#include <string.h>

// ---- what hops did in a step ----

// The work of a hop of a chain, in all micro-batches together.
struct HopRow {
    size_t times;
    const struct Comm *over; // NULL: nothing is sent
    uint64_t sent;
    struct Moved moved;
    double kernel_bytes;
};

struct Chains {
    int group;
    const struct Zero *zero;
    struct HopRow row[NCHAIN][2][HOPS_MAX]; // 2: FETCH for a forward and for a backward pass
};

// Adds a hop of the rehearsed step to its row, if it is of c->group. An all-reduce sends a rank's
// share twice.
static void add_hop(void *chains, const struct Rehearsed *one) {
    struct Chains *c = chains;
    int i = 0;
    if (!one->hop || one->args->group != c->group)
        return;
    while (c->zero->state[c->group].chain[one->kind].link[i].hop != one->hop)
        i++;
    bool backward = one->kind == FETCH && c->zero->device->label.backward;
    struct HopRow *r = &c->row[one->kind][backward][i];
    uint64_t others = one->over ? (uint64_t)one->over->size - 1 : 0;
    r->times++;
    r->over = one->over ? one->over : r->over;
    r->sent += one->bytes * others * (one->collective == COMM_ALL_REDUCE ? 2 : 1);
    moved_add(&r->moved, one->moved);
    r->kernel_bytes += one->kernel_bytes;
}

// ---- printing ----

static void print_amount(FILE *out, double bytes, const char *what) {
    if (bytes > 0)
        fprintf(out, "  %.2f MiB %s", bytes / (1 << 20), what);
}

static void print_row(FILE *out, enum ChainKind kind, bool backward, const struct Hop *hop,
                      const struct HopRow *r) {
    static const char *const chain[NCHAIN] = {"fetch", "accumulate", "reduce", "update", "publish"};
    static const char *const queue[2][NQUEUE] = {{"compute", "comm", "in", "out"},
                                                 {"host compute", "", "host in", "host out"}};
    const char *pass = kind == FETCH ? backward ? " (backward)" : " (forward)" : "";
    char name[32];
    snprintf(name, sizeof name, "%s%s", chain[kind], pass);
    fprintf(out, "  %-17s %-18s %-13s %4zu x", name, hop->name, queue[hop->on_host][hop->queue],
            r->times);
    if (r->over)
        fprintf(out, "  %.2f MiB sent, %s of %d", (double)r->sent / (1 << 20),
                axis_name(r->over->axis), r->over->size);
    print_amount(out, (double)r->moved.read, "from disk");
    print_amount(out, (double)r->moved.in, "to the device");
    print_amount(out, (double)r->moved.out, "from the device");
    print_amount(out, (double)r->moved.written, "to disk");
    print_amount(out, r->kernel_bytes, "of memory by kernels");
    fputc('\n', out);
}

static void print_chains(FILE *out, struct Rank *dry, int g) {
    const struct Zero *z = &dry->zero;
    struct Chains c = {.group = g, .zero = z};
    struct Rehearsal step;
    const struct Group *group = &dry->params.group[g];
    rehearse(dry, add_hop, &c, &step);
    fprintf(out,
            "chains of %s on rank %d: %zu parameters in %s, gradients in %s, micro-batches: %zu\n",
            group->name, dry->all->rank, group->numel, dtype_name(z->plan.param.dtype),
            dtype_name(z->plan.grad.dtype), z->plan.nmicro);
    for (enum ChainKind kind = FETCH; kind < NCHAIN; kind++)
        for (int backward = 0; backward < 2; backward++)
            for (int i = 0; i < z->state[g].chain[kind].n; i++)
                if (c.row[kind][backward][i].times)
                    print_row(out, kind, backward, z->state[g].chain[kind].link[i].hop,
                              &c.row[kind][backward][i]);
}

// ---- which group ----

static int group_named(const struct Params *p, const char *name) {
    for (int g = 0; g < p->ngroup; g++)
        if (!strcmp(p->group[g].name, name))
            return g;
    return -1;
}

int chains_print(FILE *out, const struct RankSettings *s, struct Error *e) {
    const char *name = s->show_chain;
    struct Grid grid = settings_grid(s);
    char first[sizeof((struct Group *)0)->name] = "";
    for (int stage = 0; stage < settings_stages(s); stage++) {
        struct RankSettings unbounded = settings_unbounded(s);
        struct Rank dry;
        unbounded.rank = stage * grid_stride(&grid, AXIS_PP);
        int err = rank_open(&dry, &unbounded, true, e);
        int g = err ? -1 : group_named(&dry.params, name);
        if (g >= 0)
            print_chains(out, &dry, g);
        if (!err && !stage)
            memcpy(first, dry.params.group[0].name, sizeof first);
        rank_close(&dry);
        if (err || g >= 0)
            return err;
    }
    return error_set(e, -EINVAL, E_SHOW_CHAIN,
                     "--show-chain %s: the model has no group of this name; expected %s%s, "
                     "block.0 to block.%zu%s",
                     name, first, s->model.untied ? ", head" : "", s->model.layers - 1,
                     s->model.lora.rank ? ", or adapter.N of a layer that has one" : "");
}
