// The buffer between those who print and those who read: see outlet.h.
//
// It is a ring of bytes, behind one lock that nobody holds while he waits for the reader. Where
// there is no room, the oldest lines make it, whole; the thread tells how many they were before it
// goes on with those that are left. So a reader who comes back sees what is newest, and a run's
// last lines are always there.
#include "kernels/outlet.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    STREAMS = 2,
    LINE_BYTES = 16 << 10, // of a stream's own buffer: shorter lines come in one piece
    WRITE_BYTES = 4096,    // what a pipe takes whole, so that lines of several processes stay whole
};
static const double HURRY_S = 1;
static const long LOOK_NS = 20000000; // between two looks at *hurry
static const uint64_t NOWHERE = UINT64_MAX;

// A stream of the outlet.
struct Tap {
    struct Outlet *outlet;
    char line[LINE_BYTES];
};

struct Outlet {
    int fd;
    const char *name;
    struct Tap tap[STREAMS];
    int ntap;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char *ring;
    size_t bytes;
    uint64_t begin, end; // of what is in the ring, counted from the start; place = count % bytes
    uint64_t drawn;      // where a line begins that will be drawn again; NOWHERE: there is none
    uint64_t dropped;    // lines, not told of yet
    bool open_line;      // what was written last did not end with a newline
    bool writing;        // the thread has taken a piece, and is not back yet
    int error;           // errno of the write that failed
};

// ---- into the ring; with the lock held ----

// Drops what the oldest line has in the ring. One that is drawn again ends where it is, and nobody
// misses it.
static void drop_line(struct Outlet *o) {
    for (bool first = true; o->begin < o->end; first = false) {
        char c = o->ring[o->begin % o->bytes];
        if (c == '\r' && !first)
            return;
        o->begin++;
        if (c == '\n') {
            o->dropped++;
            return;
        }
    }
}

// A line, or what there is of it so far. A progress line is drawn again and again, each time from
// "\r" on: of those the last alone is kept.
static void take_line(struct Outlet *o, const char *text, size_t n) {
    bool whole = text[n - 1] == '\n', drawn = *text == '\r';
    if (drawn && o->drawn != NOWHERE && o->drawn >= o->begin)
        o->end = o->drawn;
    o->drawn = whole ? NOWHERE : drawn ? o->end : o->drawn;
    if (n > o->bytes) { // no room would do
        o->dropped += whole;
        return;
    }
    while (o->bytes - (size_t)(o->end - o->begin) < n)
        drop_line(o);
    size_t at = o->end % o->bytes, first = n < o->bytes - at ? n : o->bytes - at;
    memcpy(o->ring + at, text, first);
    memcpy(o->ring, text + first, n - first);
    o->end += n;
}

// What a stream was flushed of; it never waits. All is said to be written: where it is not, the
// outlet tells.
static ssize_t take_text(void *tap, const char *text, size_t n) {
    struct Outlet *o = ((struct Tap *)tap)->outlet;
    pthread_mutex_lock(&o->lock);
    for (size_t at = 0, length; at < n && !o->error; at += length) {
        const char *newline = memchr(text + at, '\n', n - at);
        length = newline ? (size_t)(newline + 1 - text) - at : n - at;
        take_line(o, text + at, length);
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
    return (ssize_t)n;
}

// ---- out of it: the thread ----

// The next bytes to be written: how many lines are missing here, or whole lines of the ring as far
// as there are some.
static size_t next_piece(struct Outlet *o, char piece[WRITE_BYTES]) {
    if (o->dropped) {
        int n = snprintf(piece, WRITE_BYTES, "%s%llu %s dropped: the reader of %s was too slow\n",
                         o->open_line ? "\n" : "", (unsigned long long)o->dropped,
                         o->dropped == 1 ? "line was" : "lines were", o->name);
        o->dropped = 0;
        return (size_t)n;
    }
    size_t n = (size_t)(o->end - o->begin);
    n = n < WRITE_BYTES ? n : WRITE_BYTES;
    for (size_t i = 0; i < n; i++)
        piece[i] = o->ring[(o->begin + i) % o->bytes];
    const char *newline = memrchr(piece, '\n', n);
    n = newline ? (size_t)(newline + 1 - piece) : n;
    o->begin += n;
    return n;
}

// Returns 0 or errno. Somebody else may have made the descriptor one that does not wait.
static int write_piece(int fd, const char *piece, size_t n) {
    while (n) {
        ssize_t put = write(fd, piece, n);
        if (put < 0 && errno == EAGAIN)
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        else if (put < 0 && errno != EINTR)
            return errno;
        piece += put > 0 ? put : 0;
        n -= put > 0 ? (size_t)put : 0;
    }
    return 0;
}

static void *empty_ring(void *outlet) {
    struct Outlet *o = outlet;
    char piece[WRITE_BYTES];
    pthread_mutex_lock(&o->lock);
    while (!o->error) { // after one, as with a file: what follows is lost, too
        while (o->begin == o->end && !o->dropped)
            pthread_cond_wait(&o->changed, &o->lock);
        size_t n = next_piece(o, piece);
        o->writing = true;
        pthread_mutex_unlock(&o->lock);
        int error = write_piece(o->fd, piece, n);
        pthread_mutex_lock(&o->lock);
        o->writing = false;
        o->open_line = piece[n - 1] != '\n';
        o->error = error;
        pthread_cond_broadcast(&o->changed);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

// ---- the interface ----

static void init_lock(struct Outlet *o) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

// Detached, as it may never come back from its reader; and no signal is its to handle.
static int start_thread(struct Outlet *o) {
    pthread_t writer;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&writer, NULL, empty_ring, o);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!code)
        pthread_detach(writer);
    return -code;
}

int outlet_open(struct Outlet **out, int fd, const char *name, size_t bytes) {
    struct Outlet *o = calloc(1, sizeof *o);
    char *ring = malloc(bytes); // untouched, and so not in memory, until it is needed
    int code = o && ring ? 0 : -ENOMEM;
    if (!code) {
        o->fd = fd;
        o->name = name;
        o->ring = ring;
        o->bytes = bytes;
        o->drawn = NOWHERE;
        init_lock(o);
        code = start_thread(o);
    }
    if (code) {
        free(ring);
        free(o);
        return code;
    }
    *out = o;
    return 0;
}

FILE *outlet_stream(struct Outlet *o) {
    struct Tap *t = &o->tap[o->ntap];
    FILE *stream = fopencookie(t, "w", (cookie_io_functions_t){.write = take_text});
    if (!stream)
        return NULL;
    setvbuf(stream, t->line, _IOLBF, sizeof t->line);
    t->outlet = o;
    o->ntap++;
    return stream;
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_a_little(struct Outlet *o) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&o->changed, &o->lock, &until);
}

static bool is_empty(const struct Outlet *o) {
    return o->error || (o->begin == o->end && !o->dropped && !o->writing);
}

int outlet_wait(struct Outlet *o, bool (*hurry)(void)) {
    double hurry_since = 0;
    pthread_mutex_lock(&o->lock);
    while (!is_empty(o)) {
        if (!hurry_since && (!hurry || hurry()))
            hurry_since = seconds_now();
        if (hurry_since && seconds_now() - hurry_since >= HURRY_S)
            break;
        wait_a_little(o);
    }
    int code = o->error ? -o->error : is_empty(o) ? 0 : -EAGAIN;
    pthread_mutex_unlock(&o->lock);
    return code;
}
