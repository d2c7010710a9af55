// The NVMe tier on a disk that misbehaves (tests/lib/disk_faults.h): whatever it does, a transfer
// ends with the right bytes, or with a line that names the file, the offset and the cause.
#include "tests/lib/disk_faults.h"
#include "tests/lib/nvme_store.h"
#include "tests/lib/refused.h"
#include "tests/lib/test.h"

#include <errno.h>

// A unit in part, a request in the middle, another and a unit in part.
enum { FROM = 3 * UNIT - 1000, BYTES = 1000 + 5 * UNIT + 77 };

static struct Store open_on(struct DiskFaults *f, bool check) {
    disk_faults_init(f);
    return store_open((struct NvmeSettings){
        .block_bytes = 3 * UNIT, .depth = 3, .check = check, .disk = &f->disk});
}

// ---- short ----

// Half of the requests move so much and no more, in either direction.
TEST(fault_11_13_short_by_every_size) {
    struct DiskFaults f;
    struct Store s = open_on(&f, false);
    struct Error e;
    for (size_t bytes = 1; bytes <= SIZES; bytes++) {
        f.short_bytes = bytes;
        f.short_share = 0.5;
        size_t shift = bytes % 2 ? 0 : UNIT - FROM % UNIT + bytes % 3 * 512; // bounced, or direct
        assert_ok(store_put(&s, TAG_PARAM, FROM, BYTES, shift, &e), &e);
        assert_ok(store_get(&s, TAG_PARAM, FROM, BYTES, shift, &e), &e);
    }
    f.short_share = 0;
    store_compare(&s);
    store_close(&s);
}

// Every request is short, but moves a unit: it takes more of them.
TEST(fault_13_all_short) {
    struct DiskFaults f;
    struct Store s = open_on(&f, true);
    struct Error e;
    for (size_t bytes = UNIT; bytes <= SIZES; bytes += 111) {
        f.short_bytes = bytes;
        f.short_share = 1;
        assert_ok(store_put(&s, TAG_PARAM, FROM, BYTES, 0, &e), &e);
        assert_ok(store_get(&s, TAG_PARAM, FROM, BYTES, 0, &e), &e);
    }
    store_close(&s);
}

TEST(no_progress_is_an_error) {
    struct DiskFaults f;
    struct Store s = open_on(&f, false);
    struct Error e;
    f.short_bytes = UNIT - 1;
    f.short_share = 1;
    assert_error(store_get(&s, TAG_PARAM, FROM, BYTES, 0, &e), -EIO, &e, "E_NVME_IO");
    assert_error(store_put(&s, TAG_PARAM, UNIT, UNIT, 0, &e), -EIO, &e, "E_NVME_IO");
    f.short_share = 0;
    f.error_share = 1;
    f.error = EAGAIN;
    assert_error(store_put(&s, TAG_PARAM, UNIT, UNIT, 0, &e), -EAGAIN, &e, "E_NVME_IO");
    f.error = 0; // 0 bytes
    assert_error(store_get(&s, TAG_PARAM, UNIT, UNIT, 0, &e), -EIO, &e, "E_NVME_IO");
    assert_error(store_put(&s, TAG_PARAM, UNIT, UNIT, 0, &e), -EIO, &e, "E_NVME_IO");
    f.error = -(1 << 20); // more than there are
    assert_error(store_get(&s, TAG_PARAM, UNIT, UNIT, 0, &e), -EIO, &e, "E_NVME_IO");
    assert_int_equal(f.under_way, 0);
    store_close(&s);
}

TEST(interruptions_are_passed_over) {
    struct DiskFaults f;
    struct Store s = open_on(&f, true);
    struct Error e;
    f.error_share = 0.4;
    for (int round = 0; round < 200; round++) {
        f.error = round % 2 ? EAGAIN : EINTR;
        assert_ok(store_put(&s, TAG_PARAM, FROM, BYTES, 0, &e), &e);
        assert_ok(store_get(&s, TAG_PARAM, FROM, BYTES, 0, &e), &e);
    }
    store_close(&s);
}

// ---- errors ----

// Lets each request of a call fail in turn. The line must name the unit or request that failed, and
// nothing may be under way afterwards.
static void each_fails(bool write, int error, const char *cause) {
    struct DiskFaults f;
    struct Store s = open_on(&f, false);
    struct Error e;
    static const uint64_t offsets[] = {2 * UNIT, 3 * UNIT, 6 * UNIT, 8 * UNIT};
    int seen = 0, failed = 0;
    for (int number = 0;; number++) {
        f.error_at = f.requests + number;
        f.error = error;
        f.error_in_writes_only = write;
        int code = write ? store_put(&s, TAG_PARAM, FROM, BYTES, 1, &e)
                         : store_get(&s, TAG_PARAM, FROM, BYTES, 0, &e);
        assert_int_equal(f.under_way, 0);
        if (f.requests <= f.error_at)
            break; // the call has no more requests
        if (code == 0)
            continue; // it was a read
        failed++;
        assert_error(code, -error, &e, cause);
        assert_error(code, -error, &e, write ? "E_NVME_IO write" : "E_NVME_IO read");
        assert_error(code, -error, &e, "E_NVME_IO /zero-rank-0003.parameters");
        for (int i = 0; i < 4; i++) {
            char text[32];
            snprintf(text, sizeof text, "offset %llu ", (unsigned long long)offsets[i]);
            seen |= strstr(e.text, text) ? 1 << i : 0;
        }
    }
    assert_int_equal(failed, 4);
    assert_int_equal(seen, 15);
    f.error_at = FAULT_NEVER;
    assert_ok(store_put(&s, TAG_PARAM, 0, FILE_BYTES, 0, &e), &e);
    store_compare(&s);
    store_close(&s);
}

TEST(fault_19_no_space_at_every_write) {
    each_fails(true, ENOSPC, "E_NVME_IO");
}

TEST(input_output_errors_at_every_request) {
    each_fails(true, EIO, "E_NVME_IO Input/output error");
    each_fails(false, EIO, "E_NVME_IO Input/output error");
}

// The kernel refuses the queue's service, and not one request: the transfer ends with the line, and
// so does every later one.
TEST(a_queue_that_fails_is_an_error) {
    struct Error e;
    for (int64_t number = 0; number < 4; number++) {
        struct DiskFaults f;
        struct Store s = open_on(&f, true);
        f.break_at = number;
        f.error = EIO;
        assert_error(store_put(&s, TAG_PARAM, FROM, BYTES, 1, &e), -EIO, &e,
                     "E_NVME_IO /zero-rank-0003.parameters");
        assert_error(store_put(&s, TAG_PARAM, 0, UNIT, 0, &e), -EIO, &e, "E_NVME_IO write");
        f.break_at = 0;
        assert_error(store_get(&s, TAG_PARAM, FROM, BYTES, 0, &e), -EIO, &e, "E_NVME_IO read");
        store_close(&s);
    }
}

TEST(memory_that_cannot_be_registered_is_used) {
    struct DiskFaults f;
    struct Store s = open_on(&f, false);
    struct Error e;
    f.refuse_pin = true;
    nvme_register(s.nvme, s.memory, 1 << 20);
    assert_ok(store_put(&s, TAG_PARAM, 0, 10 * UNIT, 0, &e), &e);
    assert_ok(store_get(&s, TAG_PARAM, 0, 10 * UNIT, 0, &e), &e);
    assert_int_equal(f.with_buffer, 0);
    store_close(&s);
}

// ---- slow ----

TEST(a_disk_of_1_megabyte_a_second) {
    struct DiskFaults f;
    struct Store s = open_on(&f, true);
    struct Error e;
    f.bytes_per_second = 1e6;
    f.short_share = 0.2;
    f.short_bytes = 5000;
    double start = base_seconds();
    assert_ok(store_put(&s, TAG_PARAM, 777, 250000, 0, &e), &e);
    assert_ok(store_get(&s, TAG_PARAM, 777, 250000, 0, &e), &e);
    assert_true(base_seconds() - start > 0.49);
    store_close(&s);
}
