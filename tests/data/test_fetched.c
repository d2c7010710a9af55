// Files that were fetched, later: a damaged one is noticed and fetched again, or named; and servers
// that send us where we must not go, or send without an end.
#include "data/text/sources.h"
#include "tests/lib/http_answers.h"
#include "tests/lib/http_file.h"
#include "tests/lib/https_server.h"
#include "tests/lib/scratch.h"
#include "tests/lib/test.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

enum { BODY = 50000 };

// A disk that is never waited for: these tests fetch some hundred files.
int fsync(int fd) {
    (void)fd;
    return 0;
}

static int set_up(void **state) {
    *state = http_file_open(BODY, 1);
    log_level = LOG_QUIET;
    return 0;
}

static int tear_down(void **state) {
    log_level = LOG_NORMAL;
    http_file_close(*state);
    return 0;
}

// ---- what is damaged ----------------------------------------------------------------------------

TEST(every_flip_is_found) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_well);
    for (int i = 0; i <= 100; i++) {
        f->d.sha256 = i % 2 ? f->sha256 : NULL;
        assert_ok(download_file(&f->d, &e), &e);
        assert_int_equal(f->server.requests, i + 1);
        expect_file(f, f->body, BODY);
        scratch_flip(f->path, rng_bits(5, (uint64_t)i) % (8 * BODY));
    }
    assert_ok(download_file(&f->d, &e), &e);
    assert_int_equal(truncate(f->path, BODY - 1), 0);
    assert_ok(download_file(&f->d, &e), &e);
    expect_file(f, f->body, BODY);
    scratch_flip(f->sum, 8 * 25);
    assert_ok(download_file(&f->d, &e), &e);
    expect_file(f, f->body, BODY);
    assert_int_equal(f->server.requests, 104);
    http_file_stop(f);
}

TEST(what_cannot_be_fetched_again_is_named) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_well);
    assert_ok(download_file(&f->d, &e), &e);
    char *url = base_format("%s", f->url);
    http_file_stop(f); // now nobody listens there
    f->d.url = url;
    assert_ok(download_file(&f->d, &e), &e); // it is here
    scratch_flip(f->path, 77);
    assert_error(download_file(&f->d, &e), -ECONNREFUSED, &e, "E_URL_CONNECTION file.txt");
    assert_true(error_is(&e, "E_URL_CONNECTION http://127.0.0.1"));
    assert_int_equal(access(f->path, F_OK), 0); // it stays, for who wants to look
    free(url);
}

// An earlier version has kept no checksums, and its downloads may be large.
TEST(a_file_without_a_checksum_gets_one) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, answer_well);
    free(scratch_write(f->folder, "file.txt", f->body, BODY));
    assert_ok(download_file(&f->d, &e), &e);
    assert_int_equal(f->server.requests, 0);
    expect_file(f, f->body, BODY);
    scratch_flip(f->path, 8 * 40000);
    assert_ok(download_file(&f->d, &e), &e);
    assert_int_equal(f->server.requests, 1);
    expect_file(f, f->body, BODY);
    http_file_stop(f);
}

// A .part that is a link or a pipe is not written to.
TEST(a_part_is_a_file_of_ours) {
    struct HttpFile *f = *state;
    struct Error e;
    char *victim = scratch_write(f->folder, "victim", "precious", 8), *text;
    char *part = base_format("%s.part", f->path);
    size_t bytes;
    http_file_start(f, answer_well);
    assert_int_equal(symlink(victim, part), 0);
    assert_error(download_file(&f->d, &e), -ELOOP, &e, "E_FILE_WRITE");
    assert_ok(file_read(victim, 100, &text, &bytes, &e), &e);
    assert_string_equal(text, "precious");
    assert_int_equal(unlink(part), 0);
    assert_int_equal(mkfifo(part, 0600), 0);
    assert_error(download_file(&f->d, &e), -EINVAL, &e, "E_FILE_KIND");
    http_file_stop(f);
    free(text);
    free(part);
    free(victim);
}

// ---- servers that are not to be followed --------------------------------------------------------

static void send_elsewhere(struct HttpServer *s, int c, int nth) {
    char location[128];
    (void)nth;
    snprintf(location, sizeof location, "Location: %s\r\n", s->etag);
    http_send_status(c, "302 Found", location);
}

static void expect_not_followed(struct HttpFile *f, const char *location) {
    struct Error e;
    f->server.etag = location;
    assert_error(download_file(&f->d, &e), -EACCES, &e, "E_URL_SCHEME");
    assert_int_equal(scratch_count_files(f->folder), 0);
}

TEST(redirections_keep_to_the_web) {
    struct HttpFile *f = *state;
    char ftp[64];
    http_file_start(f, send_elsewhere);
    snprintf(ftp, sizeof ftp, "ftp://127.0.0.1:%d/x", f->server.port);
    expect_not_followed(f, ftp);
    expect_not_followed(f, "file:///etc/passwd");
    expect_not_followed(f, "gopher://127.0.0.1:1/x");
    assert_int_equal(f->server.requests, 3); // nobody has called again
    http_file_stop(f);
}

// Stands in front of libcurl's: the certificate of a test's server is nobody's. (64 and 81 are
// CURLOPT_SSL_VERIFYPEER and CURLOPT_SSL_VERIFYHOST.)
int curl_easy_perform(void *curl);
int curl_easy_perform(void *curl) {
    int (*set)(void *, int, ...) =
        (int (*)(void *, int, ...))dlsym(RTLD_DEFAULT, "curl_easy_setopt");
    int (*perform)(void *) = (int (*)(void *))dlsym(RTLD_NEXT, "curl_easy_perform");
    set(curl, 64, 0L);
    set(curl, 81, 0L);
    return perform(curl);
}

// What begins with https stays there: whoever sits between may read and change the rest.
TEST(https_does_not_become_http) {
    struct HttpFile *f = *state;
    struct HttpsServer tls;
    struct Error e;
    static const char direct[] =
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    https_start(&tls);
    if (!tls.port) {
        https_stop(&tls);
        skip(); // no openssl here
    }
    http_file_start(f, answer_well);
    char *hop = base_format("HTTP/1.1 302 Found\r\nLocation: %s\r\nContent-Length: 0\r\n"
                            "Connection: close\r\n\r\n",
                            f->url);
    free(scratch_write(tls.folder, "direct", direct, strlen(direct)));
    free(scratch_write(tls.folder, "hop", hop, strlen(hop)));
    char *url = base_format("https://127.0.0.1:%d/hop", tls.port);
    char *good = base_format("https://127.0.0.1:%d/direct", tls.port);
    f->d.url = url;
    assert_error(download_file(&f->d, &e), -EACCES, &e, "E_URL_SCHEME");
    assert_int_equal(f->server.requests, 0);
    assert_int_equal(scratch_count_files(f->folder), 0);
    f->d.url = good;
    assert_ok(download_file(&f->d, &e), &e);
    expect_file(f, "hello", 5);
    free(url);
    free(good);
    free(hop);
    http_file_stop(f);
    https_stop(&tls);
}

static void send_without_end(struct HttpServer *s, int c, int nth) {
    (void)nth;
    const char *head = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    http_send(c, head, strlen(head));
    for (int i = 0; i < 1000; i++) // 50 MB at most, where nobody hangs up
        http_send(c, s->body, s->body_bytes);
}

TEST(what_does_not_end_is_given_up) {
    struct HttpFile *f = *state;
    struct Error e;
    http_file_start(f, send_without_end);
    f->d.bytes_max = 1000000;
    assert_error(download_file(&f->d, &e), -EFBIG, &e, "E_URL_SIZE 1000000");
    assert_int_equal(scratch_count_files(f->folder), 0);
    f->d.bytes = 60000;
    assert_error(download_file(&f->d, &e), -EBADMSG, &e, "E_URL_SIZE 60000");
    assert_int_equal(scratch_count_files(f->folder), 0);
    http_file_stop(f);
}

// What a file:// URL names must be a file, or reading it would never begin or never end.
TEST(devices_are_not_fetched) {
    struct HttpFile *f = *state;
    struct Error e;
    char *pipe = base_format("%s/pipe", f->folder), *url = base_format("file://%s", pipe);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    alarm(20);
    f->d.url = url;
    assert_error(download_file(&f->d, &e), -EINVAL, &e, "E_FILE_KIND");
    f->d.url = "file:///dev/zero";
    assert_error(download_file(&f->d, &e), -EINVAL, &e, "E_FILE_KIND");
    f->d.url = "file://localhost/dev/%7a%65ro";
    assert_error(download_file(&f->d, &e), -EINVAL, &e, "E_FILE_KIND");
    alarm(0);
    assert_int_equal(scratch_count_files(f->folder), 0);
    free(pipe);
    free(url);
}

AROUND_EACH(set_up, tear_down);
