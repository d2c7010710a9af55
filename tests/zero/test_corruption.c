// Checkpoints with a byte or a bit that is not as it was written: each is found, by all ranks, in a
// line that names the file, and --resume auto goes on from the checkpoint before it.
//
// Every byte of every head, and random bits of the bodies, for 1, 2, 3 and 7 ranks. FLIPS is how
// many of the latter in each (default 25; scripts/faults/corruption.sh has 2,000 in all). A byte
// that gets past is printed with its place, and all are tried before the test fails.
#include "zero/state.h"
#include "tests/lib/scratch.h"
#include "tests/lib/state_file.h"
#include "tests/lib/test.h"
#include "tests/lib/tiny.h"

#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>

static const char identity[] = "data 1\n--lr 0.001\n";

enum { MAX_RANKS = 7 };

struct Flips {
    char *folder, *newest; // of checkpoints; of step 2
    size_t bodies;         // random bits of them
    uint64_t seed;
    uint64_t before; // the weights' hash after step 1
    size_t tried, missed;
};

// Where it is flipped, and by which bits.
struct Flip {
    int rank;
    uint64_t at;
    uint8_t bits;
};

static void flip(const struct Flips *f, const struct Flip *w) {
    char *path = checkpoint_rank_path(f->newest, w->rank);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    uint8_t byte;
    CHECK(fd >= 0 && pread(fd, &byte, 1, (off_t)w->at) == 1, "%s", path);
    byte ^= w->bits;
    CHECK(pwrite(fd, &byte, 1, (off_t)w->at) == 1, "%s", path);
    close(fd);
    free(path);
}

// What all ranks must see with the file as it is; rank 0 counts it.
static void try_one(struct Flips *f, struct Rank *r, const struct Flip *w) {
    struct Zero *z = &r->zero;
    struct Error e = {0}, ignored = {0};
    char name[32];
    snprintf(name, sizeof name, "rank-%04d.state", w->rank);
    int code = checkpoint_load(z, f->newest, identity, &e);
    const uint64_t *named = zero_share(z, code == -EBADMSG && strstr(e.text, name));
    bool any = false;
    for (int i = 0; i < z->shard_group->size; i++)
        any |= named[i] != 0;
    int err = checkpoint_resume(z, (const char *const[]){f->folder, NULL}, "auto", identity, NULL,
                                &ignored);
    bool back = !err && z->step == 1 && zero_weights_hash(z) == f->before;
    if (z->shard_group->rank != 0)
        return;
    f->tried++;
    f->missed += !any || !back;
    if (!any || !back)
        print_message("rank %d of %d, byte %llu ^ %02x: %s%s (%s)\n", w->rank, z->shard_group->size,
                      (unsigned long long)w->at, w->bits, any ? "" : "not named; ",
                      back ? "" : "not fallen back from", ignored.text[0] ? ignored.text : e.text);
}

static void try_flip(struct Flips *f, struct Rank *r, struct Flip w) {
    struct Zero *z = &r->zero;
    zero_agree(z, 0); // nobody reads the file still
    if (z->shard_group->rank == 0)
        flip(f, &w);
    zero_agree(z, 0);
    try_one(f, r, &w);
    zero_agree(z, 0);
    if (z->shard_group->rank == 0)
        flip(f, &w);
}

static struct StateFile file_of(const struct Flips *f, int rank) {
    struct StateFile file;
    char *path = checkpoint_rank_path(f->newest, rank);
    CHECK(state_file_read(path, &file) && file.intact, "%s is not intact", path);
    free(path);
    return file;
}

static void flip_all(void *context, struct Rank *r) {
    struct Flips *f = context;
    struct Zero *z = &r->zero;
    struct Error e = {0};
    for (int step = 1; step <= 2; step++) {
        tiny_step(r);
        CHECK(checkpoint_save(z, f->folder, identity, NULL, &e) == 0, "%s", e.text);
        uint64_t hash = zero_weights_hash(z);
        if (step == 1 && z->shard_group->rank == 0)
            f->before = hash;
    }
    struct StateFile file[MAX_RANKS];
    for (int rank = 0; rank < z->shard_group->size; rank++)
        file[rank] = file_of(f, rank);
    for (int rank = 0; rank < z->shard_group->size; rank++)
        for (uint64_t at = 0; at < file[rank].head_bytes; at++)
            try_flip(f, r, (struct Flip){rank, at, (uint8_t)(1 + rng_bits(f->seed, at) % 255)});
    for (size_t i = 0; i < f->bodies; i++) {
        uint64_t bits = rng_bits(f->seed + 1, i);
        struct Flip w = {.rank = (int)(bits % (uint64_t)z->shard_group->size)};
        const struct StateFile *in = &file[w.rank];
        w.at = in->head_bytes + (bits >> 8) % (in->bytes - in->head_bytes);
        w.bits = (uint8_t)(1u << (bits >> 61));
        try_flip(f, r, w);
    }
}

static void every_flip_is_found(int ranks, int stage) {
    const char *flips = getenv("FLIPS");
    struct Flips f = {.folder = scratch_make(),
                      .bodies = flips ? strtoul(flips, NULL, 10) : 25,
                      .seed = (uint64_t)ranks};
    f.newest = checkpoint_path(f.folder, 2);
    struct RankSettings s = tiny_settings(F32);
    s.model.layers = 1;
    s.model.channels = 12;
    s.ranks = ranks;
    s.stage = stage;
    s.threads = s.batch = s.nmicro = 1;
    struct Error e;
    assert_int_equal(model_config_finish(&s.model, &e), 0);
    log_level = LOG_QUIET;
    double from = base_seconds();
    tiny_ranks(&s, flip_all, &f);
    log_level = LOG_NORMAL;
    print_message("%d ranks: %zu flips, %zu not found, in %.1f s\n", ranks, f.tried, f.missed,
                  base_seconds() - from);
    assert_true(f.tried > 100 && !f.missed);
    free(f.newest);
    scratch_remove(f.folder);
}

TEST(one_rank) {
    every_flip_is_found(1, 0);
}

TEST(two_ranks) {
    every_flip_is_found(2, 2);
}

TEST(three_ranks) {
    every_flip_is_found(3, 3);
}

TEST(seven_ranks) {
    every_flip_is_found(7, 3);
}
