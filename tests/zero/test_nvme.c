// The NVMe tier's files (zero/offload/nvme.h) against a copy of what they should hold: every size
// and alignment, many pieces, two threads, sums, what is refused, and what is left behind. What a
// disk can do wrong is in test_nvme_faults.c.
#include "tests/lib/child.h"
#include "tests/lib/disk_faults.h"
#include "tests/lib/nvme_store.h"
#include "tests/lib/test.h"
#include "zero/offload/nvme_move.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

// ---- every size ----

static void sizes_round_trip(struct NvmeSettings settings, size_t step) {
    struct Store s = store_open(settings);
    struct Error e;
    for (size_t bytes = 1; bytes <= SIZES; bytes += step) {
        enum Tag tag = bytes % 2 ? TAG_PARAM : TAG_OPTIMIZER;
        uint64_t offset = draw(&s, FILE_BYTES - bytes + 1) | 1;
        offset -= offset + bytes > FILE_BYTES ? 2 : 0;
        assert_ok(store_put(&s, tag, offset, bytes, draw(&s, 99) | 1, &e), &e);
        assert_ok(store_get(&s, tag, offset, bytes, draw(&s, 99) | 1, &e), &e);
    }
    store_compare(&s);
    store_close(&s);
}

TEST(fault_11_every_size_at_odd_offsets_and_addresses) {
    sizes_round_trip((struct NvmeSettings){.block_bytes = UNIT, .depth = 2}, 1);
}

TEST(other_blocks_and_depths) {
    sizes_round_trip((struct NvmeSettings){.depth = 1}, 7);
    sizes_round_trip((struct NvmeSettings){.block_bytes = 3 * UNIT, .depth = 5, .check = true}, 5);
}

// Whole units go straight to and from the caller's memory; the last bytes of a file are no whole
// unit.
TEST(aligned_sizes_and_the_files_end) {
    struct Store s = store_open((struct NvmeSettings){.block_bytes = 4 * UNIT, .check = true});
    struct Error e;
    for (size_t i = 0; i < 300; i++) {
        uint64_t offset = draw(&s, 200) * UNIT;
        size_t bytes = (1 + draw(&s, 50)) * UNIT, shift = draw(&s, 3) * 512;
        assert_ok(store_put(&s, TAG_PARAM, offset, bytes, shift, &e), &e);
        assert_ok(store_get(&s, TAG_PARAM, offset, bytes, draw(&s, 3) * 512, &e), &e);
    }
    for (size_t bytes = 1; bytes < 300; bytes++) {
        assert_ok(store_put(&s, TAG_OPTIMIZER, FILE_BYTES - bytes, bytes, 0, &e), &e);
        assert_ok(store_get(&s, TAG_OPTIMIZER, FILE_BYTES - bytes, bytes, 1, &e), &e);
    }
    assert_ok(store_put(&s, TAG_OPTIMIZER, 0, FILE_BYTES, 0, &e), &e);
    assert_ok(store_put(&s, TAG_OPTIMIZER, 17, 0, 0, &e), &e);
    store_compare(&s);
    store_close(&s);
}

// ---- many pieces ----

// Neighbours that share units, in both files, written by one call and read by another.
TEST(pieces_that_share_units) {
    struct Store s = store_open((struct NvmeSettings){.block_bytes = UNIT, .check = true});
    struct Error e;
    for (int round = 0; round < 300; round++) {
        struct NvmePiece piece[NVME_PIECES];
        uint64_t at = draw(&s, 5000);
        char *mem = s.memory;
        for (int i = 0; i < NVME_PIECES; i++) {
            enum Tag tag = draw(&s, 4) ? TAG_PARAM : TAG_OPTIMIZER;
            size_t bytes = draw(&s, draw(&s, 2) ? 500 : 9000);
            piece[i] = (struct NvmePiece){tag, at, mem, bytes};
            fill(&s, mem, bytes);
            memcpy(s.mirror[tag] + at, mem, bytes);
            at += bytes;
            mem += bytes;
        }
        assert_ok(nvme_write(s.nvme, piece, NVME_PIECES, &e), &e);
        for (int i = 0; i < NVME_PIECES; i++)
            memset(piece[i].mem, 0, piece[i].bytes);
        assert_ok(nvme_read(s.nvme, piece, NVME_PIECES, &e), &e);
        for (int i = 0; i < NVME_PIECES; i++)
            if (memcmp(piece[i].mem, s.mirror[piece[i].file] + piece[i].offset, piece[i].bytes))
                fail_msg("round %d, piece %d", round, i);
    }
    store_compare(&s);
    store_close(&s);
}

// All pieces are under way at once, but never more requests than the depth; every byte is counted,
// and what is registered is used through its registration.
TEST(pieces_are_under_way_together) {
    struct DiskFaults f;
    disk_faults_init(&f);
    struct Store s =
        store_open((struct NvmeSettings){.block_bytes = 2 * UNIT, .depth = 6, .disk = &f.disk});
    nvme_register(s.nvme, s.memory, 1 << 20);
    struct NvmePiece piece[NVME_PIECES];
    struct Error e;
    for (size_t i = 0; i < NVME_PIECES; i++)
        piece[i] = (struct NvmePiece){TAG_PARAM, i * 20 * UNIT, s.memory + i * 2 * UNIT, 2 * UNIT};
    assert_ok(nvme_write(s.nvme, piece, NVME_PIECES, &e), &e);
    assert_int_equal(f.most_under_way, NVME_PIECES);
    assert_int_equal(f.with_buffer, NVME_PIECES);
    for (size_t i = 0; i < NVME_PIECES; i++)
        piece[i].mem = s.memory + i * 20 * UNIT, piece[i].bytes = 20 * UNIT;
    assert_ok(nvme_read(s.nvme, piece, NVME_PIECES, &e), &e);
    assert_int_equal(f.most_under_way, 6);
    assert_int_equal(f.requests, NVME_PIECES + NVME_PIECES * 10);
    assert_int_equal(f.with_buffer, f.requests);
    piece[0].mem = s.memory + (1 << 20); // not registered
    assert_ok(nvme_read(s.nvme, piece, 1, &e), &e);
    assert_int_equal(f.with_buffer, f.requests - 10);
    struct NvmeSettings settled = {.block_bytes = 2 * UNIT, .depth = 6};
    assert_int_equal(nvme_host_bytes(&settled, two_files, 0), 2 * 6 * UNIT);
    assert_int_equal(nvme_host_bytes(&settled, two_files, UNIT), 2 * 7 * UNIT);
    assert_int_equal(nvme_host_bytes(&settled, two_files, 1 << 20), 2 * 6 * 2 * UNIT);
    settled.check = true;
    assert_int_equal(nvme_host_bytes(&settled, two_files, 1 << 20), 2 * 6 * 2 * UNIT + 2 * 257 * 8);
    assert_int_equal(f.pins, 2); // one a direction
    store_close(&s);
}

// ---- two threads ----

// One thread writes odd stretches while the other reads what lies between them, in the same units.
enum { STRIPE = 1000, ROUNDS = 60 };
struct Reader {
    struct Store *store;
    const char *between;
    int wrong;
    struct Error e;
};

static void *read_between(void *context) {
    struct Reader *r = context;
    char *mem = aligned_alloc(UNIT, 2 * UNIT);
    for (int round = 0; round < ROUNDS && !r->wrong; round++)
        for (uint64_t at = STRIPE; at + STRIPE <= 200 * STRIPE && !r->wrong; at += 2 * STRIPE) {
            struct NvmePiece piece = {TAG_PARAM, at, mem, STRIPE};
            r->wrong = nvme_read(r->store->nvme, &piece, 1, &r->e) != 0;
            if (!r->wrong && memcmp(mem, r->between + at, STRIPE) != 0)
                r->wrong = error_set(&r->e, -EIO, E_NVME_IO, "other bytes at %llu",
                                     (unsigned long long)at);
        }
    free(mem);
    return NULL;
}

TEST(one_thread_reads_while_another_writes) {
    struct Store s = store_open((struct NvmeSettings){.block_bytes = UNIT, .check = true});
    struct Error e;
    assert_ok(store_put(&s, TAG_PARAM, 0, 200 * STRIPE, 0, &e), &e);
    char *between = base_alloc(200 * STRIPE);
    memcpy(between, s.mirror[TAG_PARAM], 200 * STRIPE);
    struct Reader r = {.store = &s, .between = between};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, read_between, &r), 0);
    for (int round = 0; round < ROUNDS; round++)
        for (uint64_t at = 0; at < 200 * STRIPE; at += 2 * STRIPE)
            assert_ok(store_put(&s, TAG_PARAM, at, STRIPE, 0, &e), &e);
    pthread_join(thread, NULL);
    if (r.wrong)
        fail_msg("%s", r.e.text);
    store_compare(&s);
    free(between);
    store_close(&s);
}

// ---- sums ----

// Turns one bit of the file on the disk.
static void flip_bit(struct Store *s, enum Tag tag, uint64_t at) {
    int fd = s->nvme->file[tag].fd;
    char *unit = s->memory;
    off_t begin = (off_t)(at - at % UNIT);
    assert_int_equal(pread(fd, unit, UNIT, begin), UNIT);
    unit[at % UNIT] ^= 4;
    assert_int_equal(pwrite(fd, unit, UNIT, begin), UNIT);
}

TEST(a_flipped_bit_is_found) {
    struct Store s = store_open((struct NvmeSettings){.check = true});
    struct Error e;
    assert_ok(store_put(&s, TAG_OPTIMIZER, 0, FILE_BYTES, 0, &e), &e);
    assert_ok(store_put(&s, TAG_OPTIMIZER, 40000, 70, 0, &e), &e);
    for (uint64_t at = 40960; at < 40960 + UNIT; at += 273) {
        flip_bit(&s, TAG_OPTIMIZER, at);
        assert_error(store_get(&s, TAG_OPTIMIZER, 0, FILE_BYTES, 0, &e), -EIO, &e,
                     "E_NVME_IO zero-rank-0003.optimizer");
        assert_error(store_get(&s, TAG_OPTIMIZER, 41000, 1, 0, &e), -EIO, &e, "E_NVME_IO");
        // Nor does it get a sum of its own when its neighbours are written.
        assert_error(store_put(&s, TAG_OPTIMIZER, 42000, 5, 0, &e), -EIO, &e,
                     "E_NVME_IO offset 40960");
        flip_bit(&s, TAG_OPTIMIZER, at);
        assert_ok(store_put(&s, TAG_OPTIMIZER, 42000, 5, 0, &e), &e);
        assert_ok(store_get(&s, TAG_OPTIMIZER, 0, FILE_BYTES, 0, &e), &e);
    }
    store_close(&s);
}

TEST(a_flipped_bit_is_not_looked_for_without_check) {
    struct Store s = store_open((struct NvmeSettings){0});
    struct Error e;
    assert_ok(store_put(&s, TAG_PARAM, 0, FILE_BYTES, 0, &e), &e);
    flip_bit(&s, TAG_PARAM, 5000);
    s.mirror[TAG_PARAM][5000] ^= 4;
    assert_ok(store_get(&s, TAG_PARAM, 0, FILE_BYTES, 0, &e), &e);
    store_close(&s);
}

// ---- what is refused ----

static void assert_refused(struct NvmeSettings s, uint64_t bytes, int code, const char *part) {
    struct Error e;
    struct Nvme *n = NULL;
    assert_error(nvme_preflight(&s, bytes, &e), code, &e, part);
    assert_int_equal(nvme_open(&n, &s, 0, (uint64_t[NTAG]){[TAG_GRAD] = bytes ? bytes : 1}, &e),
                     code);
    assert_non_null(strstr(e.text, "--nvme-"));
    assert_null(n);
}

TEST(folders_and_sizes_that_are_refused) {
    char *folder = folder_of_this_program(), *file = scratch_write(folder, "file", "x", 1);
    char *missing = base_format("%s/missing", folder);
    struct statvfs v;
    assert_int_equal(statvfs(folder, &v), 0);
    uint64_t room = (uint64_t)v.f_blocks * v.f_frsize;
    assert_refused((struct NvmeSettings){.folder = missing}, 0, -ENOENT, "E_NVME_PATH");
    assert_refused((struct NvmeSettings){.folder = file}, 0, -ENOTDIR, "E_NOT_A_FOLDER");
    assert_refused((struct NvmeSettings){.folder = "/dev/shm"}, 0, -EINVAL, "E_NVME_PATH tmpfs");
    assert_refused((struct NvmeSettings){.folder = folder}, room + 1, -ENOSPC, "E_DISK_FULL");
    assert_refused((struct NvmeSettings){.folder = folder, .block_bytes = 5000}, 0, -EINVAL,
                   "E_NVME_SETTINGS --nvme-block 5000");
    assert_refused((struct NvmeSettings){.folder = folder, .block_bytes = 1ull << 40}, 0, -EINVAL,
                   "E_NVME_SETTINGS --nvme-block");
    assert_refused((struct NvmeSettings){.folder = folder, .depth = 5000}, 0, -EINVAL,
                   "E_NVME_SETTINGS --nvme-depth 5000");
    struct Error e;
    assert_error(nvme_preflight(&(struct NvmeSettings){0}, 0, &e), -EINVAL, &e,
                 "E_NVME_PATH_MISSING");
    assert_int_equal(scratch_count_files(folder), 1);
    free(missing);
    free(file);
    scratch_remove(folder);
}

// In a child that is nobody, since root may write everywhere.
static void try_as_nobody(const void *folder) {
    struct Error e;
    if (geteuid() == 0 && setresuid(65534, 65534, 65534))
        _exit(3);
    int code = nvme_preflight(&(struct NvmeSettings){.folder = folder}, 0, &e);
    fprintf(stderr, "%s", e.text);
    _exit(code == -EACCES ? 0 : 1);
}

TEST(a_folder_that_may_not_be_written_is_refused) {
    char *folder = folder_of_this_program();
    int status;
    assert_int_equal(chmod(folder, 0500), 0);
    char *said = child_said(try_as_nobody, folder, &status);
    if (status != 0 || !strstr(said, folder) || strstr(said, "cannot make a file"))
        fail_msg("status %x: %s", status, said);
    free(said);
    scratch_remove(folder);
}

TEST(a_good_folder_passes_and_is_measured) {
    char *folder = folder_of_this_program();
    struct NvmeSettings s = {.folder = folder};
    struct Error e;
    assert_ok(nvme_preflight(&s, 1 << 20, &e), &e);
    double start = base_seconds();
    assert_true(nvme_measure_read(&s) > 1e5);
    assert_true(nvme_measure_write(&s) > 1e5);
    assert_true(base_seconds() - start > 1);
    assert_int_equal(scratch_count_files(folder), 0);
    scratch_remove(folder);
}

// The measured speed is that of the disk, not of its cache in this program: a disk of 40 MB/s.
TEST(a_slow_disk_measures_slow) {
    char *folder = folder_of_this_program();
    struct DiskFaults f;
    disk_faults_init(&f);
    f.bytes_per_second = 40e6;
    struct NvmeSettings s = {.folder = folder, .disk = &f.disk};
    double read = nvme_measure_read(&s), write = nvme_measure_write(&s);
    if (!(read > 25e6 && read < 45e6 && write > 25e6 && write < 45e6))
        fail_msg("%.1f and %.1f MB/s", read / 1e6, write / 1e6);
    scratch_remove(folder);
}

// ---- after a crash ----

TEST(nothing_is_left_after_kill_9) {
    char *folder = folder_of_this_program(), byte = 0;
    int pipes[2], status;
    assert_int_equal(pipe(pipes), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct Nvme *n;
        struct Error e;
        char mem[100] = {1};
        bool fine =
            nvme_open(&n, &(struct NvmeSettings){.folder = folder}, 0, two_files, &e) == 0 &&
            nvme_write(n, &(struct NvmePiece){TAG_PARAM, 5, mem, 100}, 1, &e) == 0;
        byte = fine ? 'y' : 'n';
        if (write(pipes[1], &byte, 1) == 1)
            pause();
        _exit(1);
    }
    close(pipes[1]);
    ssize_t got = read(pipes[0], &byte, 1);
    kill(child, SIGKILL); // before anything is asked, or it would wait for ever
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(got, 1);
    assert_int_equal(byte, 'y');
    close(pipes[0]);
    assert_int_equal(scratch_count_files(folder), 0);
    scratch_remove(folder);
}

// ---- a mistake of the program ----

static void read_past_the_end(const void *context) {
    struct Error e;
    nvme_read((struct Nvme *)context, &(struct NvmePiece){TAG_PARAM, FILE_BYTES - 1, NULL, 2}, 1,
              &e);
}

TEST(bytes_outside_the_file_end_the_process) {
    struct Store s = store_open((struct NvmeSettings){0});
    int status;
    char *said = child_said(read_past_the_end, s.nvme, &status);
    assert_true(WIFSIGNALED(status));
    assert_non_null(strstr(said, "are not in it"));
    free(said);
    store_close(&s);
}
