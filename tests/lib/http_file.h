// A file on a server of http_server.h, and where a test downloads it to.
#ifndef TESTS_LIB_HTTP_FILE_H
#define TESTS_LIB_HTTP_FILE_H
#include "data/file.h"
#include "data/text/download.h"
#include "data/text/sha256.h"
#include "kernels/dtype.h"
#include "tests/lib/http_server.h"
#include "tests/lib/scratch.h"

struct HttpFile {
    struct HttpServer server;
    char *folder, *path, *part, *tag, *sum, *url; // folder is empty at first
    char *body, sha256[SHA256_HEX_BYTES];
    struct Download d;
};

static inline void *http_file_open(size_t bytes, int tries) {
    struct HttpFile *f = base_alloc_zeroed(sizeof *f);
    struct Sha256 h;
    f->body = base_alloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        f->body[i] = (char)rng_bits(1, i);
    sha256_init(&h);
    sha256_update(&h, f->body, bytes);
    sha256_hex(&h, f->sha256);
    f->folder = scratch_make();
    f->path = base_format("%s/file.txt", f->folder);
    f->part = base_format("%s.part", f->path);
    f->tag = base_format("%s.part.tag", f->path);
    f->sum = base_format("%s.sum", f->path);
    f->server.body = f->body;
    f->server.body_bytes = bytes;
    f->server.etag = "\"version-1\"";
    f->d = (struct Download){
        .path = f->path, .cache_dir = f->folder, .tries = tries, .pause_s = 0.01, .stall_s = 1};
    return f;
}

static inline void http_file_close(struct HttpFile *f) {
    scratch_remove(f->folder);
    free(f->path);
    free(f->part);
    free(f->tag);
    free(f->sum);
    free(f->body);
    free(f);
}

static inline void http_file_start(struct HttpFile *f, HttpAnswer *answer) {
    http_start(&f->server, answer);
    f->url = base_format("http://127.0.0.1:%d/folder/file.txt", f->server.port);
    f->d.url = f->url;
}

static inline void http_file_stop(struct HttpFile *f) {
    http_stop(&f->server);
    free(f->url);
    f->url = NULL;
}

static inline void expect_file(const struct HttpFile *f, const char *want, size_t want_bytes) {
    char *got;
    size_t bytes;
    struct Error e;
    assert_ok(file_read(f->path, 1 << 24, &got, &bytes, &e), &e);
    assert_int_equal(bytes, want_bytes);
    assert_memory_equal(got, want, bytes);
    free(got);
    assert_int_equal(scratch_count_files(f->folder), 2); // and its checksum; no part, no tag
}

#endif
