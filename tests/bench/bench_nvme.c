// How fast the NVMe tier reads and writes a file that lies on the disk already, and how fast fio
// does the same: the same file, block and depth, by io_uring with O_DIRECT and registered buffers
// in huge pages, the two by turns. Medians in MB/s.
//
//   build/release/tests/bench_nvme [FOLDER [GB [BLOCK [DEPTH [PAIRS]]]]]
//
// FOLDER is the program's own by default, GB 1, BLOCK and DEPTH the tier's, PAIRS 5. Where fio is
// not installed (scripts/setup.sh --bench) its columns are empty. A machine that others use, or a
// disk with a limit on its rate, makes single figures worthless; their ratio is meant.
#include "zero/offload/nvme_move.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAIRS_MAX = 99, PIECE_BYTES = 64 << 20, FIO_SAYS_BYTES = 1 << 20 };

struct Bench {
    struct NvmeSettings settings;
    struct Nvme *nvme;
    uint64_t bytes;
    char *mem; // NVME_PIECES pieces
};

typedef int Transfer(struct Nvme *, const struct NvmePiece *, int, struct Error *);

// Bytes/s of one round through the file.
static double run_ours(struct Bench *b, Transfer *move) {
    double start = base_seconds();
    for (uint64_t at = 0; at < b->bytes;) {
        struct NvmePiece piece[NVME_PIECES];
        int count = 0;
        for (; count < NVME_PIECES && at < b->bytes; count++) {
            size_t bytes = size_min(b->bytes - at, PIECE_BYTES);
            piece[count] =
                (struct NvmePiece){TAG_OPTIMIZER, at, b->mem + (size_t)count * PIECE_BYTES, bytes};
            at += bytes;
        }
        struct Error e;
        CHECK(move(b->nvme, piece, count, &e) == 0, "%s", e.text);
    }
    return (double)b->bytes / (base_seconds() - start);
}

// The same by fio, by its own clock; 0: there is no fio.
static double run_fio(const struct Bench *b, const char *direction) {
    char *command = base_format(
        "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 fio --name=bench --filename=/proc/%d/fd/%d --rw=%s "
        "--bs=%zu --iodepth=%zu --size=%llu "
        "--ioengine=io_uring --direct=1 --fixedbufs=1 --allow_file_create=0 --fallocate=none "
        "--invalidate=0 --output-format=json 2>/dev/null",
        getpid(), b->nvme->file[TAG_OPTIMIZER].fd, direction, b->settings.block_bytes,
        b->settings.depth, (unsigned long long)b->bytes);
    char *text = base_alloc_zeroed(FIO_SAYS_BYTES);
    FILE *f = popen(command, "r");
    CHECK(f, "cannot start a shell");
    CHECK(fread(text, 1, FIO_SAYS_BYTES - 1, f) < FIO_SAYS_BYTES - 1, "fio says too much");
    int status = pclose(f);
    double rate = 0;
    char *begin = strchr(text, '{'); // behind notes, if there are any
    cJSON *json = begin ? cJSON_Parse(begin) : NULL;
    cJSON *job = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "jobs"), 0);
    cJSON *bytes = cJSON_GetObjectItem(cJSON_GetObjectItem(job, direction), "io_bytes");
    cJSON *speed = cJSON_GetObjectItem(cJSON_GetObjectItem(job, direction), "bw_bytes");
    bool missing = WIFEXITED(status) && WEXITSTATUS(status) == 127; // the shell's word for it
    CHECK(missing || (bytes && (uint64_t)bytes->valuedouble == b->bytes && speed),
          "fio ended with status %d and said: %s", status, text);
    if (!missing)
        rate = speed->valuedouble;
    cJSON_Delete(json);
    free(text);
    free(command);
    return rate;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

static void compare(struct Bench *b, const char *direction, Transfer *move, int pairs) {
    double ours[PAIRS_MAX], fio[PAIRS_MAX], ratio[PAIRS_MAX];
    for (int i = 0; i < pairs; i++) {
        bool fio_first = i % 2; // neither always comes after the other
        if (fio_first)
            fio[i] = run_fio(b, direction);
        ours[i] = run_ours(b, move);
        if (!fio_first)
            fio[i] = run_fio(b, direction);
        ratio[i] = fio[i] > 0 ? ours[i] / fio[i] : 0;
    }
    double of_ours = median(ours, pairs), of_fio = median(fio, pairs);
    printf("%-6s %9.0f", direction, of_ours / 1e6);
    if (of_fio > 0)
        printf(" %9.0f %7.3f %12.3f", of_fio / 1e6, of_ours / of_fio, median(ratio, pairs));
    printf("\n");
}

static void fill(char *p, size_t bytes) { // what no disk can shorten
    uint64_t x = 1;
    for (size_t i = 0; i + sizeof x <= bytes; i += sizeof x) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(p + i, &x, sizeof x);
    }
}

int main(int argc, char **argv) {
    char own[4096] = ".";
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 1] = 0;
    if (strrchr(own, '/'))
        *strrchr(own, '/') = 0;
    struct Bench b = {.settings.folder = argc > 1 ? argv[1] : own};
    struct Error e;
    double gigabytes = argc > 2 ? atof(argv[2]) : 1;
    b.settings.block_bytes = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
    b.settings.depth = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    int pairs = argc > 5 ? atoi(argv[5]) : 5;
    if (!(gigabytes > 0) || pairs < 1 || pairs > PAIRS_MAX) {
        fprintf(stderr, "bench_nvme [FOLDER [GB [BLOCK [DEPTH [PAIRS]]]]]\n");
        return 2;
    }
    int code = nvme_resolve(&b.settings, &e);
    if (!code) { // whole blocks, since fio moves no others
        b.bytes = (uint64_t)(gigabytes * 1e9) / b.settings.block_bytes * b.settings.block_bytes;
        code = nvme_preflight(&b.settings, b.bytes, &e);
    }
    if (!code)
        code = nvme_open(&b.nvme, &b.settings, 0, (uint64_t[NTAG]){[TAG_OPTIMIZER] = b.bytes}, &e);
    if (code) {
        fprintf(stderr, "%s\n", e.text);
        return 2;
    }
    size_t room = (size_t)NVME_PIECES * PIECE_BYTES;
    b.mem = aligned_alloc(2 << 20, room);
    CHECK(b.mem, "out of memory: %zu bytes", room);
    fill(b.mem, room);
    nvme_register(b.nvme, b.mem, room);
    run_ours(&b, nvme_write); // the file's first bytes
    printf("%s, %.2f GB, blocks of %zu, depth %zu, median of %d\n", b.settings.folder,
           (double)b.bytes / 1e9, b.settings.block_bytes, b.settings.depth, pairs);
    printf("MB/s        ours       fio   ratio  of each pair\n");
    compare(&b, "write", nvme_write, pairs);
    compare(&b, "read", nvme_read, pairs);
    nvme_close(b.nvme);
    free(b.mem);
    return 0;
}
