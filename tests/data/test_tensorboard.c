// The event file, read back by a small reader of its own: frames, checksums, fields.
//
// The reader knows the format from its description, not from data/log/tensorboard.c: it takes any
// field in any order, checks each checksum, and fails on trailing bytes.
#include "data/file.h"
#include "data/log/tensorboard.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// ---- the reader ----

struct Bytes {
    const uint8_t *p;
    size_t n;
};

static struct Bytes take(struct Bytes *b, size_t n) {
    assert_true(n <= b->n);
    struct Bytes front = {b->p, n};
    b->p += n;
    b->n -= n;
    return front;
}

static uint64_t take_fixed(struct Bytes *b, size_t n) {
    struct Bytes f = take(b, n);
    uint64_t x = 0;
    for (size_t i = 0; i < n; i++)
        x |= (uint64_t)f.p[i] << 8 * i;
    return x;
}

static uint64_t take_varint(struct Bytes *b) {
    uint64_t x = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        uint64_t byte = take_fixed(b, 1);
        x |= (byte & 127) << shift;
        if (byte < 128)
            return x;
    }
    fail_msg("a varint of more than ten bytes");
    return 0;
}

struct Field {
    uint64_t number, value;
    struct Bytes block;
};

static struct Field take_field(struct Bytes *b) {
    uint64_t key = take_varint(b);
    struct Field f = {.number = key >> 3};
    switch (key & 7) {
    case 0:
        f.value = take_varint(b);
        break;
    case 1:
        f.value = take_fixed(b, 8);
        break;
    case 2:
        f.block = take(b, take_varint(b));
        break;
    case 5:
        f.value = take_fixed(b, 4);
        break;
    default:
        fail_msg("wire type %d", (int)(key & 7));
    }
    return f;
}

enum { NSCALAR_MAX = 16 };

struct Event {
    double wall_time;
    uint64_t step, session_status;
    char version[32];
    int nscalar;
    char tag[NSCALAR_MAX][32];
    float value[NSCALAR_MAX];
};

static void copy_text(char text[32], struct Bytes b) {
    assert_true(b.n < 32);
    memcpy(text, b.p, b.n);
    text[b.n] = 0;
}

static void read_scalar(struct Bytes b, struct Event *event) {
    assert_true(event->nscalar < NSCALAR_MAX);
    int i = event->nscalar++;
    while (b.n) {
        struct Field f = take_field(&b);
        uint32_t bits = (uint32_t)f.value;
        if (f.number == 1)
            copy_text(event->tag[i], f.block);
        else if (f.number == 2)
            memcpy(&event->value[i], &bits, 4);
        else
            fail_msg("field %d in a summary value", (int)f.number);
    }
}

static struct Event read_event(struct Bytes b) {
    struct Event event = {0};
    while (b.n) {
        struct Field f = take_field(&b), inner;
        switch (f.number) {
        case 1:
            memcpy(&event.wall_time, &f.value, 8);
            break;
        case 2:
            event.step = f.value;
            break;
        case 3:
            copy_text(event.version, f.block);
            break;
        case 5:
            while (f.block.n) {
                inner = take_field(&f.block);
                assert_int_equal(inner.number, 1);
                read_scalar(inner.block, &event);
            }
            break;
        case 7:
            inner = take_field(&f.block);
            assert_int_equal(inner.number, 1);
            event.session_status = inner.value;
            break;
        default:
            fail_msg("field %d in an event", (int)f.number);
        }
    }
    return event;
}

static uint32_t unmask(uint32_t masked) {
    uint32_t x = masked - 0xa282ead8u;
    return x >> 17 | x << 15;
}

static struct Event take_record(struct Bytes *file) {
    struct Bytes header = take(file, 8), header_again = header;
    assert_int_equal(unmask((uint32_t)take_fixed(file, 4)), crc32c(header.p, 8));
    struct Bytes payload = take(file, take_fixed(&header_again, 8));
    assert_int_equal(unmask((uint32_t)take_fixed(file, 4)), crc32c(payload.p, payload.n));
    return read_event(payload);
}

// ---- the tests ----

struct Fixture {
    char folder[64];
    struct EventFile file;
    struct Error error;
};

static int setup(void **state) {
    struct Fixture *x = base_alloc_zeroed(sizeof *x);
    strcpy(x->folder, "/tmp/test_tensorboard.XXXXXX");
    *state = x;
    return mkdtemp(x->folder) ? 0 : -1;
}

static int teardown(void **state) {
    struct Fixture *x = *state;
    appender_close(&x->file.file, &x->error);
    DIR *d = opendir(x->folder);
    for (struct dirent *entry; (entry = readdir(d));)
        unlinkat(dirfd(d), entry->d_name, 0);
    closedir(d);
    int left = rmdir(x->folder);
    free(x);
    return left;
}

static void open_file(struct Fixture *x, int64_t last_step) {
    if (event_file_open(&x->file, x->folder, last_step, &x->error))
        fail_msg("%s", x->error.text);
}

static char *read_back(struct Fixture *x, struct Bytes *b) {
    char *text;
    size_t n;
    if (file_read(x->file.file.path, 1 << 20, &text, &n, &x->error))
        fail_msg("%s", x->error.text);
    *b = (struct Bytes){(uint8_t *)text, n};
    return text;
}

// The vectors of RFC 3720, appendix B.4, and the usual check value.
TEST(crc32c_has_the_known_values) {
    uint8_t bytes[32] = {0};
    assert_int_equal(crc32c("123456789", 9), 0xe3069283u);
    assert_int_equal(crc32c("", 0), 0);
    assert_int_equal(crc32c(bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(bytes, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(bytes, 32), 0x46dd794eu);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)(31 - i);
    assert_int_equal(crc32c(bytes, 32), 0x113fdb5cu);
    assert_int_equal(unmask(crc32c_masked(bytes, 32)), 0x113fdb5cu);
}

static double fixed_clock(void) {
    return 1234567890.25;
}

TEST(scalars_read_back) {
    struct Fixture *x = *state;
    open_file(x, RUNLOG_FRESH);
    x->file.clock = fixed_clock;
    struct LogStep s = {200, 2.5f, NAN, 6e-4f, 12345.5, 20, 0, 0, 0, 0};
    event_file_write_step(&x->file, &s);
    event_file_write_val(&x->file, (uint64_t)1 << 40, -0.0f, 0);
    event_file_write_val(&x->file, 201, 3, 1.5f);
    struct EvalResult bin = {"hellaswag:a/c\xc3\xa9.bin", 3, {-1, -1, 0.5}};
    event_file_write_eval(&x->file, 202, &bin);
    s.loss_scale = 65536;
    event_file_write_step(&x->file, &s);
    struct Bytes b;
    char *text = read_back(x, &b); // while it is open: nothing waits in a buffer
    struct Event version = take_record(&b), step = take_record(&b), val = take_record(&b),
                 bits = take_record(&b), eval = take_record(&b), scaled = take_record(&b);
    assert_int_equal(b.n, 0);
    assert_string_equal(version.version, "brain.Event:2");
    assert_true(version.wall_time > 1.6e9 && version.wall_time < 1e10);
    assert_true(step.wall_time == 1234567890.25);
    assert_int_equal(step.step, 200);
    static const char *const tags[] = {"train/loss", "train/grad_norm", "train/lr",
                                       "train/tokens_per_s"};
    assert_int_equal(step.nscalar, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(step.tag[i], tags[i]);
    assert_true(step.value[0] == 2.5f && isnan(step.value[1]) && step.value[2] == 6e-4f);
    assert_true(step.value[3] == 12345.5f);
    assert_int_equal(val.nscalar, 2);
    assert_string_equal(val.tag[0], "val/loss");
    assert_string_equal(val.tag[1], "val/perplexity");
    assert_true(val.step == (uint64_t)1 << 40 && signbit(val.value[0]) && val.value[1] == 1);
    assert_int_equal(bits.nscalar, 3);
    assert_string_equal(bits.tag[2], "val/bits_per_byte");
    assert_true(bits.step == 201 && bits.value[0] == 3 && bits.value[2] == 1.5f);
    assert_int_equal(eval.nscalar, 1);
    assert_string_equal(eval.tag[0], "eval/c__.bin/llmc_acc");
    assert_true(eval.step == 202 && eval.value[0] == 0.5f);
    assert_int_equal(scaled.nscalar, 5);
    assert_string_equal(scaled.tag[4], "train/loss_scale");
    assert_true(scaled.value[4] == 65536);
    free(text);
    assert_int_equal(appender_close(&x->file.file, &x->error), 0);
}

TEST(what_else_is_told_reads_back) {
    struct Fixture *x = *state;
    open_file(x, RUNLOG_FRESH);
    struct LogStep s = {7, 2.5f, 1, 1, 1, 20, 0, 0.5, 0.25, 1 << 20};
    static const struct LogValue seconds[] = {{"weights", 0.5}, {"data", 2}};
    event_file_write_step(&x->file, &s);
    event_file_write_note(&x->file, &(struct LogNote){7, "waited_s", seconds, 2, NULL});
    struct LogNote word = {7, "weights_hash", NULL, 0, "00ff"}; // no number
    event_file_write_note(&x->file, &word);
    struct Bytes b;
    char *text = read_back(x, &b);
    take_record(&b);
    struct Event step = take_record(&b), note = take_record(&b);
    assert_int_equal(b.n, 0);
    static const char *const tags[] = {"train/tokens_seen", "train/light", "train/mfu"};
    assert_int_equal(step.nscalar, 7);
    for (int i = 0; i < 3; i++)
        assert_string_equal(step.tag[4 + i], tags[i]);
    assert_true(step.value[4] == 1 << 20 && step.value[5] == 0.5f && step.value[6] == 0.25f);
    assert_true(note.step == 7 && note.nscalar == 2 && note.value[0] == 0.5f);
    assert_string_equal(note.tag[0], "waited_s/weights");
    assert_true(!strcmp(note.tag[1], "waited_s/data") && note.value[1] == 2);
    free(text);
}

TEST(the_name_says_time_and_host_and_never_repeats) {
    struct Fixture *x = *state;
    char host[256] = "", names[3][512] = {""};
    gethostname(host, sizeof host - 1);
    for (int i = 0; i < 3; i++) {
        open_file(x, RUNLOG_FRESH);
        snprintf(names[i], sizeof names[i], "%s", x->file.file.path);
        assert_int_equal(appender_close(&x->file.file, &x->error), 0);
        assert_non_null(strstr(names[i], "/events.out.tfevents."));
        assert_non_null(strstr(names[i], host));
        assert_true(!i || strcmp(names[i - 1], names[i]) < 0); // TensorBoard reads them by name
    }
}

TEST(a_resumed_run_voids_later_steps) {
    struct Fixture *x = *state;
    open_file(x, 41);
    struct Bytes b;
    char *text = read_back(x, &b);
    struct Event version = take_record(&b), start = take_record(&b);
    assert_int_equal(b.n, 0);
    assert_string_equal(version.version, "brain.Event:2");
    assert_int_equal(start.session_status, 1);
    assert_int_equal(start.step, 42);
    free(text);
}

TEST(what_cannot_be_written_is_told) {
    struct Fixture *x = *state;
    assert_int_equal(event_file_open(&x->file, "/nonexistent", RUNLOG_FRESH, &x->error), -ENOENT);
    assert_true(error_is(&x->error, "E_FILE_WRITE /nonexistent/events.out.tfevents."));
    assert_null(x->file.file.path);
    open_file(x, RUNLOG_FRESH);
    int full = open("/dev/full", O_WRONLY);
    assert_true(full >= 0 && dup2(full, x->file.file.fd) >= 0); // from here on the disk is full
    close(full);
    struct LogStep s = {.step = 1};
    event_file_write_step(&x->file, &s);
    assert_int_equal(appender_sync(&x->file.file, &x->error), -ENOSPC);
    assert_true(error_is(&x->error, "E_FILE_WRITE"));
    event_file_write_val(&x->file, 1, 1, 0);
    assert_int_equal(appender_close(&x->file.file, &x->error), -ENOSPC);
}

AROUND_EACH(setup, teardown);
