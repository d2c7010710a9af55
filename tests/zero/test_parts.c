// Checkpoints of a model whose places have parts of each tensor: those of any grid of places and
// ranks are read by any other, and initial values and the hash do not tell the grid.
#include "tests/lib/seats.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include "kernels/hash.h"
#include "zero/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>

// ---- checkpoints ----

static const char identity[] = "data 1\n--lr 0.001\n";

static void save(struct SeatsJob *job, struct Zero *z) {
    struct Error e = {0};
    seats_fill(z, NSTATE);
    z->step = z->known = 3;
    z->updates = 2;
    seats_note(job, z, checkpoint_save(z, job->folder, identity, NULL, &e), &e);
}

static void load(struct SeatsJob *job, struct Zero *z) {
    struct Error e = {0};
    char *path = checkpoint_path(job->folder, 3);
    int err = checkpoint_load(z, path, identity, &e);
    seats_note(job, z, err, &e);
    if (!err) {
        seats_expect(job, z, NSTATE);
        job->wrong += z->step != 3 || z->updates != 2;
    }
    free(path);
}

static void load_weights(struct SeatsJob *job, struct Zero *z) {
    struct Error e = {0};
    char *path = checkpoint_path(job->folder, 3);
    int err = checkpoint_load_weights(z, path, identity, &e);
    seats_note(job, z, err, &e);
    if (!err)
        seats_expect(job, z, STATE_MASTER + 1);
    free(path);
}

struct Shape {
    int tp, dp, replicas, stage;
};

TEST(any_grid_loads_any_other) {
    static const struct Shape shapes[] = {{1, 1, 1, 0}, {2, 1, 1, 3}, {4, 1, 1, 0},
                                          {3, 1, 1, 1}, {2, 2, 1, 3}, {1, 3, 1, 2},
                                          {3, 2, 1, 0}, {2, 1, 2, 1}, {4, 2, 1, 2}};
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    static const struct {
        enum FamilyKind kind;
        bool untied;
        size_t vocab;
    } models[] = {{FAMILY_GPT2, false, 61}, {FAMILY_QWEN3, true, 130}, {FAMILY_QWEN2, false, 193}};
    for (int m = 0; m < 3; m++) {
        uint64_t hash = 0;
        for (int i = 0; i < SHAPES; i++) {
            struct SeatsJob first = seats_job(models[m].kind, models[m].untied, models[m].vocab,
                                              shapes[i].tp, shapes[i].dp);
            char *folder = scratch_make();
            first.replicas = shapes[i].replicas;
            first.stage = shapes[i].stage;
            first.folder = folder;
            seats_run(&first, save);
            hash = i ? hash : first.hash;
            assert_true(first.hash == hash);
            for (int k = 0; k < SHAPES; k++) {
                struct SeatsJob second = first;
                second.tp = shapes[k].tp;
                second.dp = shapes[k].dp;
                second.replicas = shapes[k].replicas;
                second.stage = shapes[k].stage;
                seats_run(&second, load);
                assert_true(second.hash == hash && second.seen > 0);
            }
            scratch_remove(folder);
        }
    }
}

// Long rows, so that runs pass the window in which short ones are read, and chunks.
TEST(large_parts_are_read_as_well) {
    static const int places[] = {2, 3, 1};
    struct Error e;
    for (int i = 0; i < 3; i++) {
        struct SeatsJob first = seats_job(FAMILY_GPT2, true, 700, places[i], 1);
        char *folder = scratch_make();
        first.c.layers = 1;
        first.c.channels = 48;
        first.c.ffn = 33000;
        assert_int_equal(model_config_finish(&first.c, &e), 0);
        first.folder = folder;
        seats_run(&first, save);
        for (int k = 0; k < 3; k++) {
            struct SeatsJob second = first;
            second.tp = places[k];
            seats_run(&second, load);
            assert_true(second.hash == first.hash);
        }
        scratch_remove(folder);
    }
}

TEST(weights_alone_are_loaded_by_any) {
    char *folder = scratch_make();
    struct SeatsJob first = seats_job(FAMILY_QWEN3, true, 130, 3, 1);
    first.folder = folder;
    first.dtype = BF16; // masters of their own
    seats_run(&first, save);
    for (int tp = 1; tp <= 4; tp++) {
        struct SeatsJob second = first;
        second.tp = tp;
        seats_run(&second, load_weights);
        assert_true(second.hash == first.hash);
    }
    scratch_remove(folder);
}

// Adds to a master weight in a rank's file of two.
static void spoil(const char *folder, int rank, uint32_t group, size_t element, float by) {
    char *path = base_format("%s/step-00000003/rank-%04d.state", folder, rank);
    struct CheckpointHead head;
    struct Error e = {0};
    int fd;
    float x;
    assert_int_equal(checkpoint_file_open(AT_FDCWD, path, &fd, &head, &e), 0);
    assert_int_equal(head.grid.size[AXIS_TP], 2);
    uint64_t in_file = element - head.group[group].begin;
    assert_int_equal(checkpoint_file_seek(fd, path, &head, group, 0, in_file, &e), 0);
    off_t at = lseek(fd, 0, SEEK_CUR), end = lseek(fd, 0, SEEK_END);
    close(fd);
    fd = open(path, O_RDWR);
    char *bytes = base_alloc((size_t)end);
    assert_int_equal(pread(fd, bytes, (size_t)end, 0), end);
    memcpy(&x, bytes + at, sizeof x);
    x += by;
    memcpy(bytes + at, &x, sizeof x);
    uint64_t hash = hash64(bytes, (size_t)end - sizeof hash, 0);
    memcpy(bytes + end - sizeof hash, &hash, sizeof hash);
    assert_int_equal(pwrite(fd, bytes, (size_t)end, 0), end);
    close(fd);
    free(bytes);
    free(path);
    checkpoint_head_free(&head);
}

static void count_wrong(struct SeatsJob *job, struct Zero *z) {
    load(job, z);
    job->seen = job->wrong;
    job->wrong = 0;
}

// And what one place has is read from its own files.
TEST(what_all_have_is_place_0s) {
    struct Params p;
    struct SeatsJob first = seats_job(FAMILY_GPT2, false, 61, 2, 1);
    params_layout(&first.c, 1, 1, 2, &p);
    const struct Param *all = &p.group[1].param[BLOCK_NORM1_W];
    const struct Param *one = &p.group[1].param[BLOCK_PROJ_W];
    for (int which = 0; which < 3; which++) {
        char *folder = scratch_make();
        first.folder = folder;
        seats_run(&first, save);
        spoil(folder, which > 0, 1, which == 2 ? one->offset : all->offset, 1);
        struct SeatsJob second = first;
        second.tp = 1;
        seats_run(&second, count_wrong);
        assert_int_equal(second.seen, which == 1 ? 0 : 1);
        scratch_remove(folder);
    }
    params_free(&p);
}

TEST(another_shape_is_refused) {
    char *folder = scratch_make();
    struct SeatsJob first = seats_job(FAMILY_QWEN3, true, 61, 4, 1);
    first.folder = folder;
    seats_run(&first, save);
    for (int i = 0; i < 3; i++) {
        struct SeatsJob second = first;
        struct Error e;
        second.tp = 1;
        if (i == 0) // other sizes
            second.c.channels = 48;
        else if (i == 1) // no four parts
            second.c.heads = second.c.kv_heads = 6;
        else // another vocabulary
            second.c.vocab = 300;
        assert_int_equal(model_config_finish(&second.c, &e), 0);
        seats_try(&second, load);
        assert_int_equal(second.err, -EINVAL);
        assert_true(error_is(&second.e, "E_CHECKPOINT_SHAPE"));
    }
    scratch_remove(folder);
}

// ---- initial values ----

static void nothing(struct SeatsJob *job, struct Zero *z) {
    (void)job, (void)z;
}

TEST(a_fresh_model_has_one_hash) {
    static const enum Dtype dtypes[] = {F32, BF16};
    for (int d = 0; d < 2; d++) {
        uint64_t hash = 0;
        for (int tp = 1; tp <= 4; tp++)
            for (int dp = 1; dp <= 2; dp++) {
                struct SeatsJob job = seats_job(FAMILY_QWEN3, true, 61, tp, dp);
                job.dtype = dtypes[d];
                seats_run(&job, nothing);
                hash = tp * dp == 1 ? job.hash : hash;
                assert_true(job.hash == hash);
            }
    }
}
