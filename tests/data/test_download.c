// Downloads against a server that refuses, breaks off, stalls, lies and changes its mind.
#include "data/text/sources.h"
#include "tests/lib/http_answers.h"
#include "tests/lib/http_file.h"
#include "tests/lib/refused.h"

#include <errno.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BODY = 300000 };

// A disk with room for so many bytes more; stands in front of the C library's write. Sockets are
// not files.
static long disk_room = -1;

ssize_t write(int fd, const void *bytes, size_t n) {
    struct stat st;
    if (disk_room >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode)) {
        if (disk_room == 0)
            return errno = ENOSPC, -1;
        n = size_min(n, (size_t)disk_room); // a short write comes first, as on a real disk
        disk_room -= (long)n;
    }
    return syscall(SYS_write, fd, bytes, n);
}

// A disk without locks.
static bool no_locks;

int flock(int fd, int how) {
    return no_locks ? errno = EOPNOTSUPP, -1 : (int)syscall(SYS_flock, fd, how);
}

static int set_up(void **state) {
    no_locks = false;
    *state = http_file_open(BODY, 3);
    return 0;
}

static int tear_down(void **state) {
    http_file_close(*state);
    return 0;
}

static void expect_success(struct HttpFile *f, int requests) {
    struct Error e;
    assert_ok(download_file(&f->d, &e), &e);
    assert_int_equal(f->server.requests, requests);
    expect_file(f, f->body, BODY);
}

// ---- tests --------------------------------------------------------------------------------------

static void a_file_comes_whole(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, answer_well);
    f->d.sha256 = f->sha256;
    f->d.bytes = BODY;
    expect_success(f, 1);
    expect_success(f, 1); // it is there: nobody is asked again
    http_file_stop(f);
}

static void an_empty_file_comes_too(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    f->server.body_bytes = 0;
    http_file_start(f, answer_well);
    assert_ok(download_file(&f->d, &e), &e);
    expect_file(f, "", 0);
    http_file_stop(f);
}

static void no_server_is_told(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_well);
    char *url = base_format("%s", f->url);
    http_file_stop(f); // now nobody listens there
    f->d.url = url;
    assert_error(download_file(&f->d, &e), -ECONNREFUSED, &e, "E_URL_CONNECTION");
    assert_non_null(strstr(e.text, url));
    assert_int_equal(scratch_count_files(f->folder), 0);
    f->d.url = "http://name.invalid/x";
    assert_error(download_file(&f->d, &e), -ECONNREFUSED, &e, "E_URL_CONNECTION name.invalid");
    free(url);
}

static void refusals_are_final(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_404);
    assert_error(download_file(&f->d, &e), -ENOENT, &e, "E_URL_STATUS answers 404");
    assert_int_equal(f->server.requests, 1);
    http_file_stop(f);
    http_file_start(f, answer_403);
    assert_error(download_file(&f->d, &e), -EACCES, &e, "E_URL_STATUS answers 403");
    assert_int_equal(f->server.requests, 1);
    http_file_stop(f);
    assert_int_equal(scratch_count_files(f->folder), 0);
}

static void trouble_of_the_server_passes(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, trouble_twice);
    expect_success(f, 3);
    http_file_stop(f);
}

static void a_broken_transfer_goes_on(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, break_once);
    expect_success(f, 2);
    assert_non_null(strstr(f->server.request, "\r\nRange: bytes=100000-\r\n"));
    assert_non_null(strstr(f->server.request, "\r\nIf-Range: \"version-1\"\r\n"));
    http_file_stop(f);
}

static void a_later_run_goes_on(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, break_always);
    assert_error(download_file(&f->d, &e), -EIO, &e, "E_URL_BROKEN");
    assert_int_equal(f->server.requests, 3);
    http_file_stop(f);
    struct stat st;
    assert_int_equal(stat(f->part, &st), 0);
    assert_int_equal(st.st_size, 100000);
    assert_int_not_equal(stat(f->path, &st), 0);
    http_file_start(f, answer_well);
    expect_success(f, 1);
    assert_non_null(strstr(f->server.request, "\r\nRange: bytes=100000-\r\n"));
    http_file_stop(f);
}

static void progress_keeps_patience(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, crawl);
    f->d.sha256 = f->sha256;
    expect_success(f, 12);
    http_file_stop(f);
}

static void the_version_outlives_an_error_page(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, break_with_trouble);
    expect_success(f, 3);
    assert_non_null(strstr(f->server.request, "\r\nIf-Range: \"version-1\"\r\n"));
    http_file_stop(f);
}

static void a_changed_file_is_not_patched_up(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, break_always);
    assert_int_equal(download_file(&f->d, &e), -EIO);
    http_file_stop(f);
    for (size_t i = 0; i < BODY; i++)
        f->body[i] ^= 0x55;
    f->server.etag = "\"version-2\"";
    http_file_start(f, answer_well);
    expect_success(f, 1);
    http_file_stop(f);
}

// Neither a tag nor a checksum: pieces could be of different versions, so nothing is continued.
static void without_a_version_it_starts_over(void **state) {
    struct HttpFile *f = *state;
    f->server.etag = NULL;
    http_file_start(f, break_once);
    expect_success(f, 2);
    assert_null(strstr(f->server.request, "Range"));
    http_file_stop(f);
}

static void servers_may_ignore_ranges(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, ignore_ranges);
    expect_success(f, 2);
    http_file_stop(f);
}

static void another_part_than_asked_for_is_seen(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, lie_about_ranges);
    expect_success(f, 3);
    http_file_stop(f);
}

static void a_redirection_is_followed(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, redirect);
    expect_success(f, 4); // each attempt is redirected
    assert_non_null(strstr(f->server.request, "\r\nIf-Range: \"version-1\"\r\n"));
    http_file_stop(f);
}

static void a_wrong_checksum_is_refused(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    f->d.sha256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed";
    http_file_start(f, answer_well);
    assert_error(download_file(&f->d, &e), -EBADMSG, &e, "E_URL_CHECKSUM");
    assert_non_null(strstr(e.text, f->d.sha256));
    assert_non_null(strstr(e.text, f->sha256));
    assert_int_equal(f->server.requests, 1);
    assert_int_equal(scratch_count_files(f->folder), 0);
    f->d.sha256 = NULL;
    f->d.bytes = BODY + 1;
    assert_error(download_file(&f->d, &e), -EBADMSG, &e, "E_URL_SIZE 300000");
    assert_int_equal(scratch_count_files(f->folder), 0);
    http_file_stop(f);
}

// A part on the disk that is not the beginning of this file: the checksum tells, and one fresh
// start heals.
static void a_foreign_part_is_replaced(void **state) {
    struct HttpFile *f = *state;
    free(scratch_write(f->folder, "file.txt.part", "not the beginning", 17));
    free(scratch_write(f->folder, "file.txt.part.tag", "\"version-1\"", 11));
    f->d.sha256 = f->sha256;
    http_file_start(f, answer_well);
    expect_success(f, 2);
    http_file_stop(f);
}

static void a_part_too_long_is_replaced(void **state) {
    struct HttpFile *f = *state;
    char *long_part = base_alloc_zeroed(BODY + 1);
    free(scratch_write(f->folder, "file.txt.part", long_part, BODY + 1));
    free(scratch_write(f->folder, "file.txt.part.tag", "\"version-1\"", 11));
    http_file_start(f, answer_well);
    expect_success(f, 2);
    assert_null(strstr(f->server.request, "Range"));
    free(long_part);
    http_file_stop(f);
}

static void a_stalled_server_is_given_up(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    f->d.tries = 1;
    http_file_start(f, stall);
    double begin = base_seconds();
    assert_error(download_file(&f->d, &e), -ETIMEDOUT, &e, "E_URL_STALLED");
    assert_true(base_seconds() - begin < 10);
    http_file_stop(f);
}

// Each attempt comes further, which is no reason to try for ever.
static void a_server_that_hardly_sends_is_given_up(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, drip);
    double begin = base_seconds();
    assert_error(download_file(&f->d, &e), -ETIMEDOUT, &e, "E_URL_STALLED 1000");
    assert_true(base_seconds() - begin < 15);
    assert_int_equal(f->server.requests, 2);
    http_file_stop(f);
}

static void a_slow_server_is_waited_for(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, trickle); // 1.5 s in all, more than stall_s
    expect_success(f, 1);
    http_file_stop(f);
}

static void fault_19_a_full_disk_is_told(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    struct stat st;
    http_file_start(f, answer_well);
    disk_room = 150000;
    int code = download_file(&f->d, &e);
    disk_room = -1;
    assert_error(code, -ENOSPC, &e, "E_FILE_WRITE");
    assert_non_null(strstr(e.text, f->part));
    assert_int_equal(f->server.requests, 1); // trying again would not help
    assert_int_not_equal(stat(f->path, &st), 0);
    expect_success(f, 2); // room again: what came before is kept
    assert_true(http_range(&f->server) > 0);
    http_file_stop(f);
}

static void an_unwritable_folder_is_told(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_well);
    f->d.path = "/proc/none/file";
    assert_error(download_file(&f->d, &e), -ENOENT, &e, "E_FILE_WRITE /proc/none/file.part");
    assert_int_equal(f->server.requests, 0);
    http_file_stop(f);
}

// Four processes want one file: one fetches it, the others wait for it.
static void runs_at_the_same_time_share(void **state) {
    struct HttpFile *f = *state;
    http_file_start(f, trickle);
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct Error e;
            log_level = LOG_QUIET;
            _exit(download_file(&f->d, &e) ? 1 : 0);
        }
    }
    for (int i = 0, status; i < 4; i++) {
        assert_true(wait(&status) > 0);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    assert_int_equal(f->server.requests, 1);
    expect_file(f, f->body, BODY);
    http_file_stop(f);
}

static void expect_part(const struct HttpFile *f, const char *want) {
    char *got;
    size_t bytes;
    struct Error e;
    assert_ok(file_read(f->part, BODY, &got, &bytes, &e), &e);
    assert_string_equal(got, want);
    assert_int_equal(scratch_count_files(f->folder), 1); // neither a part of its own nor a lock
    free(got);
}

// Nobody can tell there whether another run fills the part: it stays as it is.
static void without_locks_each_has_a_part_of_its_own(void **state) {
    struct HttpFile *f = *state;
    struct Error e;
    no_locks = true;
    f->d.sha256 = f->sha256; // so that a part may be gone on with
    free(scratch_write(f->folder, "file.txt.part", "another run's", 13));
    f->d.tries = 1;
    http_file_start(f, break_once);
    assert_error(download_file(&f->d, &e), -EIO, &e, "E_URL_BROKEN");
    expect_part(f, "another run's");
    http_file_stop(f);
    http_file_start(f, answer_well);
    assert_ok(download_file(&f->d, &e), &e);
    assert_int_equal(http_range(&f->server), 0);
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(unlink(f->sum), 0);
    expect_part(f, "another run's");
    http_file_stop(f);
}

// A known name whose file is another one now.
static void a_known_name_is_checked(void **state) {
    struct HttpFile *f = *state;
    struct Source s;
    struct Error e;
    http_file_start(f, answer_well);
    char *mirror = base_format("http://127.0.0.1:%d", f->server.port);
    setenv("ZERO_MIRROR", mirror, 1);
    int code = source_open(&s, "--data", "tinyshakespeare", f->folder, &e);
    assert_error(code, -EBADMSG, &e, "E_URL_SIZE --data tinyshakespeare: http://127.0.0.1");
    assert_true(error_is(&e, "E_URL_SIZE 1115394"));
    assert_non_null(strstr(f->server.request, "GET /tinyshakespeare/input.txt "));
    unsetenv("ZERO_MIRROR");
    free(mirror);
    http_file_stop(f);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_file_comes_whole),
        TEST(an_empty_file_comes_too),
        TEST(no_server_is_told),
        TEST(refusals_are_final),
        TEST(trouble_of_the_server_passes),
        TEST(a_broken_transfer_goes_on),
        TEST(a_later_run_goes_on),
        TEST(progress_keeps_patience),
        TEST(the_version_outlives_an_error_page),
        TEST(a_changed_file_is_not_patched_up),
        TEST(without_a_version_it_starts_over),
        TEST(servers_may_ignore_ranges),
        TEST(another_part_than_asked_for_is_seen),
        TEST(a_redirection_is_followed),
        TEST(a_wrong_checksum_is_refused),
        TEST(a_foreign_part_is_replaced),
        TEST(a_part_too_long_is_replaced),
        TEST(a_stalled_server_is_given_up),
        TEST(a_server_that_hardly_sends_is_given_up),
        TEST(a_slow_server_is_waited_for),
        TEST(fault_19_a_full_disk_is_told),
        TEST(an_unwritable_folder_is_told),
        TEST(runs_at_the_same_time_share),
        TEST(without_locks_each_has_a_part_of_its_own),
        TEST(a_known_name_is_checked),
    };
    return cmocka_run_group_tests_name("downloads", tests, NULL, NULL);
}
