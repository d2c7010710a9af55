// Safetensors files: what transformers wrote is read, each value of each dtype, in any part; every
// kind of damaged or hostile header is refused with its reason; short and interrupted reads go on,
// and none is of more than 4 MB.
#include "data/hf/safetensors.h"
#include "data/json.h"
#include "data/range.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <math.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FIXTURES "tests/fixtures/hf/"

// ---- a disk that is slow to answer --------------------------------------------------------------
// Where read_most is set, each call brings so many bytes at most, and every third is interrupted.

static size_t read_most, read_calls, read_largest;

ssize_t pread(int fd, void *bytes, size_t n, off_t at) {
    read_largest = size_max(read_largest, n);
    if (read_most && ++read_calls % 3 == 0)
        return errno = EINTR, -1;
    return syscall(SYS_pread64, fd, bytes, read_most ? size_min(n, read_most) : n, at);
}

// ---- files --------------------------------------------------------------------------------------

static char *folder;

static int set_up(void **state) {
    (void)state;
    folder = scratch_make();
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    scratch_remove(folder);
    return 0;
}

// Byte i of a file's tensors; a part of them looks like no other.
static uint8_t byte_at(size_t i) {
    return (uint8_t)(i % 251);
}

// The header with its length in front, and `data` bytes behind.
static char *write_file(const char *header, size_t data) {
    size_t n = strlen(header), bytes = 8 + n + data;
    uint8_t *all = base_alloc(bytes);
    for (int i = 0; i < 8; i++)
        all[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(all + 8, header, n);
    for (size_t i = 0; i < data; i++)
        all[8 + n + i] = byte_at(i);
    char *path = scratch_write(folder, "x.safetensors", all, bytes);
    free(all);
    return path;
}

// The header is refused with a line that holds `part`.
static void expect_refused(const char *header, size_t data, const char *part) {
    char *path = write_file(header, data);
    struct Safetensors f;
    struct Error e = {0};
    assert_error(safetensors_open(path, &f, &e), -EINVAL, &e, part);
    assert_non_null(strstr(e.text, "x.safetensors"));
    assert_true(f.fd < 0 && !f.tensor && !f.path);
    free(path);
}

static void expect_bytes_refused(const void *bytes, size_t n, const char *part) {
    char *path = scratch_write(folder, "x.safetensors", bytes, n);
    struct Safetensors f;
    struct Error e = {0};
    assert_error(safetensors_open(path, &f, &e), -EINVAL, &e, part);
    free(path);
}

// ---- what is read -------------------------------------------------------------------------------

TEST(reads_what_transformers_wrote) {
    struct Safetensors f;
    struct Error e = {0};
    assert_ok(safetensors_open(FIXTURES "inv_freq.safetensors", &f, &e), &e);
    const struct Tensor *t = safetensors_find(&f, "llama2-7b");
    assert_non_null(t);
    assert_true(t->is_float && t->dtype == F32 && t->ndim == 1 && t->count == 64);
    float values[64];
    assert_ok(safetensors_read(&f, t, 0, 64, values, &e), &e);
    for (int i = 0; i < 64; i++) // theta ^ (-2 i / head size)
        assert_true(fabs(values[i] * pow(10000, i / 64.0) - 1) < 1e-6);
    assert_null(safetensors_find(&f, "llama2"));
    assert_null(safetensors_find(&f, ""));
    safetensors_close(&f);
}

// Every 16-bit pattern, as one tensor, is converted as the kernels convert it, however the reading
// is cut.
static void expect_all_patterns(const char *spelled, enum Dtype dtype) {
    char *header = base_format(
        "{\"t\":{\"dtype\":\"%s\",\"shape\":[256,256],\"data_offsets\":[0,131072]}}", spelled);
    char *path = write_file(header, 131072);
    uint16_t *patterns = base_alloc(65536 * sizeof *patterns);
    for (size_t i = 0; i < 65536; i++)
        patterns[i] = (uint16_t)i;
    FILE *file = fopen(path, "r+");
    assert_int_equal(fseek(file, 8 + (long)strlen(header), SEEK_SET), 0);
    assert_int_equal(fwrite(patterns, sizeof *patterns, 65536, file), 65536);
    fclose(file);
    struct Safetensors f;
    struct Error e = {0};
    assert_ok(safetensors_open(path, &f, &e), &e);
    float *got = base_alloc(65536 * sizeof *got);
    for (size_t at = 0, n = 1; at < 65536; at += n, n = size_min(n * 3, 65536 - at))
        assert_ok(safetensors_read(&f, f.tensor, at, n, got + at, &e), &e);
    for (size_t i = 0; i < 65536; i++)
        assert_int_equal(f32_bits(got[i]), f32_bits(dtype_load(patterns, dtype, i)));
    safetensors_close(&f);
    free(got);
    free(patterns);
    free(path);
    free(header);
}

TEST(converts_every_pattern) {
    expect_all_patterns("BF16", BF16);
    expect_all_patterns("F16", F16);
}

TEST(slow_reads_go_on) {
    read_most = 4099;
    expect_all_patterns("BF16", BF16);
    read_most = 0;
}

// 3 M elements: no read is of more than 4 MB, and all values come, those of a place of one's own,
// too.
TEST(large_tensors_come_in_parts) {
    enum { N = 3 << 20 };
    for (int half = 0; half < 2; half++) {
        char *header =
            base_format("{\"t\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[0,%d]}}",
                        half ? "BF16" : "F32", N, N * (half ? 2 : 4));
        char *path = write_file(header, N * (half ? 2 : 4));
        struct Safetensors f;
        struct Error e = {0};
        assert_ok(safetensors_open(path, &f, &e), &e);
        float *got = base_alloc((N + 1) * sizeof *got);
        got[N] = 1234;
        read_largest = 0;
        assert_ok(safetensors_read(&f, f.tensor, 0, N, got, &e), &e);
        assert_true(read_largest > 1 << 20 && read_largest <= RANGE_BYTES);
        assert_true(got[N] == 1234);
        for (size_t i = 0; i < N; i++) {
            size_t size = half ? 2 : 4;
            uint32_t bits = 0;
            for (size_t j = 0; j < size; j++)
                bits |= (uint32_t)byte_at(i * size + j) << (8 * j + (half ? 16 : 0));
            assert_int_equal(f32_bits(got[i]), bits);
        }
        safetensors_close(&f);
        free(got);
        free(path);
        free(header);
    }
}

TEST(odd_but_right_headers_open) {
    // No tensor; one element; no element; out of order; spaces behind; a dtype of half bytes.
    static const struct {
        const char *header;
        size_t data, n;
    } good[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}  \n ", 0, 0},
        {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, 1},
        {"{\"b\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[4,6]},"
         "\"a\":{\"shape\":[2,1],\"data_offsets\":[0,4],\"dtype\":\"BF16\"}}",
         6, 2},
        {"{\"q\":{\"dtype\":\"F4\",\"shape\":[6],\"data_offsets\":[0,3]}}", 3, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        char *path = write_file(good[i].header, good[i].data);
        struct Safetensors f;
        struct Error e = {0};
        assert_ok(safetensors_open(path, &f, &e), &e);
        assert_int_equal(f.ntensor, good[i].n);
        safetensors_close(&f);
        free(path);
    }
}

TEST(other_dtypes_are_listed_only) {
    char *path =
        write_file("{\"i\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", 16);
    struct Safetensors f;
    struct Error e = {0};
    float x[2];
    assert_ok(safetensors_open(path, &f, &e), &e);
    assert_string_equal(f.tensor->spelled, "I64");
    assert_error(safetensors_read(&f, f.tensor, 0, 2, x, &e), -EINVAL, &e, "E_HF_TENSOR_DTYPE I64");
    safetensors_close(&f);
    free(path);
}

// ---- what is refused ----------------------------------------------------------------------------

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" #begin        \
    "," #end "]}"

TEST(damaged_headers_are_refused) {
    expect_refused("{" TENSOR("a", "F32", "2", 0, 8) "}", 7, "E_SAFETENSORS_OFFSETS");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 8) "}", 9, "E_SAFETENSORS_OFFSETS 1");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 12) "}", 12, "E_SAFETENSORS_TENSOR 12");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 4) "}", 4, "E_SAFETENSORS_TENSOR [2] takes 4");
    expect_refused("{" TENSOR("a", "F32", "2", 8, 0) "}", 8, "E_SAFETENSORS_OFFSETS");
    expect_refused("{" TENSOR("a", "F32", "2", 4, 12) "}", 12, "E_SAFETENSORS_OFFSETS 4");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 8) "," TENSOR("b", "F32", "2", 4, 12) "}", 12,
                   "E_SAFETENSORS_OFFSETS a");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 8) "," TENSOR("b", "F32", "2", 0, 8) "}", 8,
                   "E_SAFETENSORS_OFFSETS a");
    expect_refused("{" TENSOR("a", "F32", "1", 0, 4) "," TENSOR("b", "F32", "1", 8, 12) "}", 12,
                   "E_SAFETENSORS_OFFSETS 4");
    expect_refused("{" TENSOR("a", "F32", "1", 0, 4) "," TENSOR("a", "F32", "1", 4, 8) "}", 8,
                   "E_JSON_DUPLICATE_KEY \"a\"");
    expect_refused("{" TENSOR("a", "F32", "4294967296,4294967296,4", 0, 8) "}", 8,
                   "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "F32", "4294967296,1073741824", 0, 8) "}", 8,
                   "E_SAFETENSORS_TENSOR 8");
    expect_refused("{" TENSOR("a", "F32", "-1", 0, 8) "}", 8, "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "F32", "1.5", 0, 6) "}", 6, "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "F32", "1e300", 0, 6) "}", 6, "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "F32", "1,1,1,1,1,1,1,1,1", 0, 4) "}", 4,
                   "E_SAFETENSORS_TENSOR 8");
    expect_refused("{" TENSOR("a", "F32", "\"2\"", 0, 8) "}", 8, "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "", "2", 0, 8) "}", 8, "E_SAFETENSORS_TENSOR");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 18446744073709551615) "}", 8,
                   "E_SAFETENSORS_OFFSETS");
    expect_refused("{" TENSOR("a", "F32", "2", 0, 9007199254740992) "}", 8,
                   "E_SAFETENSORS_OFFSETS");
}

TEST(missing_keys_are_refused) {
    expect_refused("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
                   "E_SAFETENSORS_TENSOR \"dtype\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8,
                   "E_SAFETENSORS_TENSOR \"shape\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8,
                   "E_SAFETENSORS_TENSOR \"data_offsets\"");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,8]}}",
                   8, "E_SAFETENSORS_TENSOR \"shape\"");
    expect_refused("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8,
                   "E_SAFETENSORS_TENSOR");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8,
                   "E_SAFETENSORS_TENSOR");
    expect_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8,
                   "E_SAFETENSORS_OFFSETS");
    expect_refused("{\"a\":[]}", 0, "E_SAFETENSORS_TENSOR");
}

TEST(other_texts_are_refused) {
    expect_refused("", 0, "E_JSON_SYNTAX");
    expect_refused("[]", 0, "E_JSON_SYNTAX");
    expect_refused("{", 0, "E_JSON_SYNTAX");
    expect_refused("{} {}", 0, "E_JSON_SYNTAX line 1, column 4");
    expect_refused("\x80\x02}q", 0, "E_JSON_SYNTAX");
    // A name that would break the line is shown without what breaks it.
    expect_refused("{\"a\\nb\":[]}", 0, "E_SAFETENSORS_TENSOR a?b");
    char *many = base_alloc(5000003);
    memset(many, ',', 5000002);
    many[0] = '[', many[5000002] = 0;
    expect_refused(many, 0, "E_JSON_TOO_LARGE 4000000");
    free(many);
}

TEST(false_lengths_are_refused) {
    expect_bytes_refused("", 0, "E_SAFETENSORS_HEADER 0");
    expect_bytes_refused("\2\0\0\0\0\0\0", 7, "E_SAFETENSORS_HEADER 7");
    expect_bytes_refused("\3\0\0\0\0\0\0\0{}", 10, "E_SAFETENSORS_HEADER 10");
    expect_bytes_refused("\1\341\365\5\0\0\0\0{}", 10, "E_SAFETENSORS_HEADER 100000001");
    expect_bytes_refused("\377\377\377\377\377\377\377\377{}", 10,
                         "E_SAFETENSORS_HEADER 18446744073709551615");
}

TEST(only_files_are_opened) {
    struct Safetensors f;
    struct Error e = {0};
    char *pipe_path = base_format("%s/pipe", folder), *link_path = base_format("%s/link", folder);
    assert_int_equal(mkfifo(pipe_path, 0600), 0);
    assert_error(safetensors_open(pipe_path, &f, &e), -EINVAL, &e, "E_FILE_KIND");
    assert_error(safetensors_open(folder, &f, &e), -EISDIR, &e, "E_FILE_KIND");
    assert_error(safetensors_open("/dev/zero", &f, &e), -EINVAL, &e, "E_FILE_KIND");
    assert_error(safetensors_open(link_path, &f, &e), -ENOENT, &e, "E_FILE_READ");
    char *path = write_file("{}", 0);
    assert_int_equal(symlink(path, link_path), 0); // caches are full of links
    assert_ok(safetensors_open(link_path, &f, &e), &e);
    safetensors_close(&f);
    free(path);
    free(pipe_path);
    free(link_path);
}

TEST(a_file_that_shrinks_is_told) {
    char *path = write_file("{" TENSOR("a", "F32", "2", 0, 8) "}", 8);
    struct Safetensors f;
    struct Error e = {0};
    float x[2];
    assert_ok(safetensors_open(path, &f, &e), &e);
    assert_int_equal(truncate(path, (off_t)f.tensor->end - 1), 0);
    assert_error(safetensors_read(&f, f.tensor, 0, 2, x, &e), -EIO, &e, "E_FILE_READ");
    safetensors_close(&f);
    free(path);
}

AROUND_ALL(set_up, tear_down);
