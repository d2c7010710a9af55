// The ways in which the server of tests/data/test_download.c behaves, good and bad. The file that
// it serves has 300,000 bytes; answer_well serves any.
#ifndef TESTS_LIB_HTTP_ANSWERS_H
#define TESTS_LIB_HTTP_ANSWERS_H
#include "tests/lib/http_server.h"

static inline void answer_well(struct HttpServer *s, int c, int nth) {
    (void)nth;
    http_send_file(s, c, SIZE_MAX);
}

static inline void answer_404(struct HttpServer *s, int c, int nth) {
    (void)s, (void)nth;
    http_send_status(c, "404 Not Found", "");
}

static inline void answer_403(struct HttpServer *s, int c, int nth) {
    (void)s, (void)nth;
    http_send_status(c, "403 Forbidden", "");
}

static inline void trouble_twice(struct HttpServer *s, int c, int nth) {
    if (nth == 0)
        http_send_status(c, "503 Service Unavailable", "");
    else if (nth == 1)
        http_send_status(c, "429 Too Many Requests", "");
    else
        http_send_file(s, c, SIZE_MAX);
}

static inline void break_once(struct HttpServer *s, int c, int nth) {
    http_send_file(s, c, nth == 0 ? 100000 : SIZE_MAX);
}

static inline void break_always(struct HttpServer *s, int c, int nth) {
    (void)nth;
    size_t from = http_range(s);
    http_send_file(s, c, from < 100000 ? 100000 - from : 0);
}

// Breaks off twelve times, but comes further each time.
static inline void crawl(struct HttpServer *s, int c, int nth) {
    (void)nth;
    http_send_file(s, c, 25000);
}

static inline void break_with_trouble(struct HttpServer *s, int c, int nth) {
    if (nth == 1)
        http_send_status(c, "502 Bad Gateway", "ETag: \"of the error page\"\r\n");
    else
        http_send_file(s, c, nth == 0 ? 100000 : SIZE_MAX);
}

static inline void ignore_ranges(struct HttpServer *s, int c, int nth) {
    s->request[0] = 0;
    http_send_file(s, c, nth == 0 ? 100000 : SIZE_MAX);
}

static inline void stall(struct HttpServer *s, int c, int nth) {
    (void)nth;
    http_send_file(s, c, 1000);
    char byte;
    while (recv(c, &byte, 1, 0) > 0) // until the client gives up
        ;
}

static inline void trickle(struct HttpServer *s, int c, int nth) {
    (void)nth;
    http_send_file(s, c, 0);
    for (size_t at = 0; at < s->body_bytes; at += 2000) {
        http_send(c, s->body + at, size_min(2000, s->body_bytes - at));
        usleep(10000);
    }
}

// Some bytes a second, for as long as the client takes them.
static inline void drip(struct HttpServer *s, int c, int nth) {
    (void)nth;
    http_send_file(s, c, 0);
    for (size_t at = 0; at < s->body_bytes && send(c, s->body + at, 1, MSG_NOSIGNAL) == 1; at++)
        usleep(100000);
}

static inline void redirect(struct HttpServer *s, int c, int nth) {
    (void)nth;
    if (strstr(s->request, "GET /folder/"))
        http_send_status(c, "302 Found",
                         "Location: /elsewhere\r\nETag: \"of the redirection\"\r\n");
    else
        http_send_file(s, c, strstr(s->request, "Range:") ? SIZE_MAX : 100000);
}

// Says 206, and sends another part than it was asked for.
static inline void lie_about_ranges(struct HttpServer *s, int c, int nth) {
    if (nth != 1) {
        http_send_file(s, c, nth == 0 ? 100000 : SIZE_MAX);
        return;
    }
    const char *head = "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-299999/300000\r\n"
                       "Content-Length: 300000\r\nConnection: close\r\n\r\n";
    http_send(c, head, strlen(head));
    http_send(c, s->body, s->body_bytes);
}

#endif
