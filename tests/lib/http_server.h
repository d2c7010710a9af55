// A small HTTP/1.1 server on 127.0.0.1 that misbehaves as a test asks it to. One connection at a
// time, one request per connection, in a thread of its own.
#ifndef TESTS_LIB_HTTP_SERVER_H
#define TESTS_LIB_HTTP_SERVER_H
#include "kernels/base.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct HttpServer;

// What to do with request number `nth`, counted from 0. The connection is closed afterwards.
typedef void HttpAnswer(struct HttpServer *server, int connection, int nth);

struct HttpServer {
    int listener, port;
    pthread_t thread;
    HttpAnswer *answer;
    const char *body, *etag; // the file that http_send_file serves; etag NULL: none is sent
    size_t body_bytes;
    _Atomic int requests;
    char request[4096]; // the last one, written before it is counted
};

static inline void http_send(int connection, const void *bytes, size_t n) {
    for (const char *p = bytes; n;) {
        ssize_t put = send(connection, p, n, MSG_NOSIGNAL);
        if (put <= 0)
            return; // the client has hung up
        p += put;
        n -= (size_t)put;
    }
}

static inline void http_send_status(int connection, const char *status, const char *headers) {
    char text[512];
    int n = snprintf(text, sizeof text,
                     "HTTP/1.1 %s\r\n%sContent-Length: 9\r\nConnection: close\r\n\r\nsome text",
                     status, headers);
    http_send(connection, text, (size_t)n);
}

// Where the request's Range header begins; 0 without one.
static inline size_t http_range(const struct HttpServer *s) {
    const char *range = strstr(s->request, "\r\nRange: bytes=");
    return range ? strtoul(range + 15, NULL, 10) : 0;
}

// Serves the file as a good server does, ranges and If-Range included, but sends no more than
// `most` bytes of body before it hangs up.
static inline void http_send_file(struct HttpServer *s, int connection, size_t most) {
    char head[1024], tag[256] = "";
    size_t from = http_range(s), to = s->body_bytes;
    const char *range = strstr(s->request, "\r\nRange: bytes="), *if_range;
    const char *end = range ? strchr(range + 15, '-') + 1 : NULL;
    if (end && *end >= '0' && *end <= '9')
        to = size_min(to, strtoul(end, NULL, 10) + 1);
    if (s->etag)
        snprintf(tag, sizeof tag, "ETag: %s\r\n", s->etag);
    if_range = strstr(s->request, "\r\nIf-Range: ");
    if (if_range && (!s->etag || strncmp(if_range + 12, s->etag, strlen(s->etag)))) {
        range = NULL;
        from = 0;
        to = s->body_bytes;
    }
    if (from >= s->body_bytes && range) {
        http_send_status(connection, "416 Range Not Satisfiable", tag);
        return;
    }
    int n =
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\nConnection: close\r\n",
                 range ? "206 Partial Content" : "200 OK", tag, to - from);
    if (range)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Range: bytes %zu-%zu/%zu\r\n",
                      from, to - 1, s->body_bytes);
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    http_send(connection, head, (size_t)n);
    http_send(connection, s->body + from, size_min(to - from, most));
}

static inline void *http_run(void *user) {
    struct HttpServer *s = user;
    for (;;) {
        int connection = accept(s->listener, NULL, NULL);
        if (connection < 0)
            return NULL; // http_stop
        size_t n = 0;
        ssize_t got;
        while (n + 1 < sizeof s->request && (n < 4 || !strstr(s->request, "\r\n\r\n")) &&
               (got = recv(connection, s->request + n, sizeof s->request - 1 - n, 0)) > 0)
            s->request[n += (size_t)got] = 0;
        s->answer(s, connection, s->requests++);
        shutdown(connection, SHUT_RDWR);
        close(connection);
    }
}

static inline void http_start(struct HttpServer *s, HttpAnswer *answer) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    s->answer = answer;
    s->requests = 0;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(s->listener >= 0 && !bind(s->listener, (struct sockaddr *)&address, size) &&
              !listen(s->listener, 16) &&
              !getsockname(s->listener, (struct sockaddr *)&address, &size),
          "no socket on 127.0.0.1");
    s->port = ntohs(address.sin_port);
    CHECK(!pthread_create(&s->thread, NULL, http_run, s), "pthread_create");
}

static inline void http_stop(struct HttpServer *s) {
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
}

#endif
