// Faults on purpose, at the Nth call of a class that the program makes: libfault.so, for
// LD_PRELOAD. scripts/faults/faults.sh sweeps N over whole runs of ./train.
//
// It stands in for the calls in fault_calls.h, and looks who calls: what comes from the program's
// own objects (the executable's text) is counted; calls that libraries make for themselves go
// through. What is due is refused with an error, done by half, put off, or is the process's end.
//
//   FAULT_CLASS=write,fsync  whose calls are counted; "file": every class of files and folders
//   FAULT_AT=N               the Nth of them, from 1; without it nothing happens
//   FAULT_FOR=K              and the K - 1 after it; 0: and all after it (1)
//   FAULT_DO=WHAT            ENOSPC, EIO, ...: it fails so, and nothing was done
//                            tear: a read or write does half, and says so
//                            torn:EIO: a write does half, and then fails so
//                            delay:MS
//                            skip: it is not made, and says 0, as if it had gone well
//                            kill, kill-torn, kill-after: SIGKILL before it, half way, after it
//   FAULT_RANK=R             in the process of that rank of a job alone
//   FAULT_LOG=FILE           gets "fault CLASS N NAME OFFSET DO" when one happens, and at the end
//                            "calls CLASS COUNT" and "site OFFSET NAME COUNT"; an offset is where
//                            the call returns to, in the executable
//   FAULT_HURRY=F            the program's own sleeps take 1/F of their time
//
// Calls reach it as twelve integers, whatever they take: on the machines that we know integers and
// pointers travel so, and those that are not there are not looked at. Only printf and its like have
// others; they are last in this file.
#include "tests/lib/fault_calls.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum Fails { FAILS_MINUS, FAILS_ZERO, FAILS_CODE, FAILS_NEGATIVE, FAILS_ABORT };
enum { MAX_SITES = 4096, STREAM_FAILED = 0x20 }; // glibc's bit for ferror

typedef long Function(long, long, long, long, long, long, long, long, long, long, long, long);

static struct Call {
    const char *name;
    enum Class class;
    enum Fails fails;
    int stream;
    _Atomic(Function *) real;
} calls[NCALL] = {
#define AS_ROW(name, class, fails, stream) {#name, CLASS_##class, FAILS_##fails, stream, NULL},
    FAULT_CALLS(AS_ROW){"completion", CLASS_URING, FAILS_NEGATIVE, 0, NULL},
    {"printf", CLASS_WRITE, FAILS_MINUS, 1, NULL},
    {"fprintf", CLASS_WRITE, FAILS_MINUS, 1, NULL},
    {"__isoc99_fscanf", CLASS_READ, FAILS_MINUS, 1, NULL}};

static atomic_long counted, per_class[NCLASS];
static struct Site {
    _Atomic uintptr_t offset;
    atomic_long hits;
    const char *name;
} sites[MAX_SITES];

// ---- telling ----

// glibc's own names for memory, as dlsym may want some.
extern Function __libc_malloc, __libc_calloc, __libc_realloc;

static Function *real_of(enum CallId id) {
    struct Call *c = &calls[id];
    Function *real = c->real;
    if (real)
        return real;
    const char *name = id == CALL_printf || id == CALL_fprintf ? "vfprintf"
                       : id == CALL_fscanf                     ? "__isoc99_vfscanf"
                                                               : c->name;
    real = id == CALL_malloc    ? __libc_malloc
           : id == CALL_calloc  ? __libc_calloc
           : id == CALL_realloc ? __libc_realloc
                                : (Function *)dlsym(RTLD_NEXT, name);
    return c->real = real;
}

#define REAL(id, ...) call_real(CALL_##id, (const long[NARG]){__VA_ARGS__})

static long call_real(enum CallId id, const long a[NARG]) {
    return real_of(id)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
}

static void tell(const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    int file = (int)REAL(open, (long)fault_set.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666,
                         0, 0, 0, 0, 0);
    if (file >= 0) {
        REAL(write, file, (long)line, n);
        REAL(close, file);
    }
}

static void tell_counts(void) {
    static atomic_flag told;
    if (!fault_set.log || !fault_set.counts || atomic_flag_test_and_set(&told))
        return;
    for (int c = 0; c < NCLASS; c++)
        if (per_class[c])
            tell("calls %s %ld\n", fault_class_name[c], per_class[c]);
    for (int i = 0; i < MAX_SITES; i++)
        if (sites[i].offset && sites[i].name)
            tell("site %lx %s %ld\n", (long)sites[i].offset, sites[i].name, sites[i].hits);
}

static void note_site(uintptr_t offset, const char *name) {
    for (size_t i = offset * 0x9e3779b97f4a7c15u >> 52, tried = 0; tried < MAX_SITES;
         i = (i + 1) % MAX_SITES, tried++) {
        uintptr_t none = 0;
        if (atomic_compare_exchange_strong(&sites[i].offset, &none, offset))
            sites[i].name = name;
        else if (none != offset)
            continue;
        sites[i].hits++;
        return;
    }
}

// ---- what happens ----

static long fail(const struct Call *c, const long arg[NARG]) {
    errno = fault_set.error;
    if (c->stream)
        ((FILE *)arg[c->stream - 1])->_flags |= STREAM_FAILED;
    if (c->fails == FAILS_ABORT) { // MPI's own way, where nobody asked for another
        void *world = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
        tell_counts();
        REAL(MPI_Abort, (long)world, 16);
    }
    return c->fails == FAILS_ZERO       ? 0
           : c->fails == FAILS_CODE     ? fault_set.error
           : c->fails == FAILS_NEGATIVE ? -fault_set.error
                                        : -1;
}

static void die(void) {
    tell_counts();
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int real_nanosleep(const struct timespec *t, struct timespec *left) {
    int (*sleep)(const struct timespec *, struct timespec *);
    *(void **)&sleep = dlsym(RTLD_NEXT, "nanosleep");
    return sleep(t, left);
}

static void sleep_ms(long ms) {
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    real_nanosleep(&t, NULL);
}

// Whether this call is one of those to which something happens; counts it.
static bool is_due(const struct Call *c, uintptr_t site) {
    per_class[c->class]++;
    note_site(site - fault_set.own.base, c->name);
    if (!(fault_set.classes >> c->class & 1))
        return false;
    long n = ++counted;
    if (!fault_set.at || n < fault_set.at || (fault_set.most && n >= fault_set.at + fault_set.most))
        return false;
    if (fault_set.log && n < fault_set.at + 3)
        tell("fault %s %ld %s %lx %s\n", fault_class_name[c->class], n, c->name,
             (long)(site - fault_set.own.base), fault_set.text);
    return true;
}

static bool has_bytes(enum CallId id) {
    return id == CALL_read || id == CALL_pread || id == CALL_write || id == CALL_pwrite;
}

#if __has_include(<liburing.h>)
#include <liburing.h>

// What the kernel has completed since the last look is judged like a call: the result that the
// program will read is in memory that it shares with the kernel.
static void judge_completions(struct io_uring *ring, const void *site) {
    enum { MAX_RINGS = 64 };
    static struct {
        struct io_uring *ring;
        unsigned judged;
    } seen[MAX_RINGS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct Call *c = &calls[CALL_completion];
    pthread_mutex_lock(&lock);
    int r = 0;
    while (r < MAX_RINGS - 1 && seen[r].ring && seen[r].ring != ring)
        r++;
    unsigned head = *ring->cq.khead, tail = __atomic_load_n(ring->cq.ktail, __ATOMIC_ACQUIRE);
    if (seen[r].ring != ring || seen[r].judged - head > tail - head) // or another ring's memory
        seen[r].judged = head;
    seen[r].ring = ring;
    for (; seen[r].judged != tail; seen[r].judged++) {
        struct io_uring_cqe *done = &ring->cq.cqes[seen[r].judged & *ring->cq.kring_mask];
        if (!is_due(c, (uintptr_t)site))
            continue;
        if (fault_set.what == DO_FAIL)
            done->res = -fault_set.error;
        else if (fault_set.what == DO_TEAR && done->res > 0)
            done->res = done->res / 2 & ~4095;
        else if (fault_set.what >= DO_KILL)
            die();
    }
    pthread_mutex_unlock(&lock);
}

static void judge(enum CallId id, const long a[NARG], const void *site) {
    if (id == CALL_io_uring_submit_and_wait || id == CALL___io_uring_get_cqe)
        judge_completions((struct io_uring *)a[0], site);
}
#else
static void judge(enum CallId id, const long a[NARG], const void *site) {
    (void)id, (void)a, (void)site;
}
#endif

static long make(enum CallId id, const long a[NARG]) {
    if (fault_set.records)
        fault_record_before(id, a);
    long result = call_real(id, a);
    if (fault_set.records)
        fault_record_after(id, a, result);
    return result;
}

static long make_half(enum CallId id, const long a[NARG]) {
    long half[NARG];
    memcpy(half, a, sizeof half);
    half[2] /= 2;
    return has_bytes(id) ? make(id, half) : 0;
}

static long make_with_fault(enum CallId id, const long a[NARG]) {
    if (fault_set.what == DO_TEAR && has_bytes(id) && a[2] > 1)
        return make_half(id, a);
    if (fault_set.what == DO_TORN || fault_set.what == DO_KILL_TORN)
        make_half(id, a);
    if (fault_set.what == DO_FAIL || fault_set.what == DO_TORN)
        return fail(&calls[id], a);
    if (fault_set.what == DO_SKIP)
        return 0;
    if (fault_set.what == DO_KILL || fault_set.what == DO_KILL_TORN)
        die();
    if (fault_set.what == DO_DELAY)
        sleep_ms(fault_set.delay_ms);
    long result = make(id, a);
    if (fault_set.what == DO_KILL_AFTER)
        die();
    return result;
}

static bool is_ours(uintptr_t site) {
    return fault_set.counts && own_code_has(&fault_set.own, site);
}

static long pass(enum CallId id, const void *site, const long a[NARG]) {
    if (!is_ours((uintptr_t)site))
        return call_real(id, a);
    bool due = is_due(&calls[id], (uintptr_t)site);
    long result = due ? make_with_fault(id, a) : make(id, a);
    judge(id, a, site);
    return result;
}

__attribute__((destructor)) static void end(void) {
    tell_counts();
}

// ---- the calls ----

#define EXPORTED(name) __asm__(name) __attribute__((visibility("default")))
#define LONGS                                                                                      \
    long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l
#define AS_FUNCTION(name, class, fails, stream)                                                    \
    long fault_##name(LONGS) EXPORTED(#name);                                                      \
    long fault_##name(LONGS) {                                                                     \
        const long all[NARG] = {a, b, c, d, e, f, g, h, i, j, k, l};                               \
        return pass(CALL_##name, __builtin_return_address(0), all);                                \
    }
FAULT_CALLS(AS_FUNCTION)

#define HERE __builtin_return_address(0)

int fault_printf(const char *format, ...) EXPORTED("printf");
int fault_fprintf(FILE *out, const char *format, ...) EXPORTED("fprintf");
int fault_fscanf(FILE *in, const char *format, ...) EXPORTED("__isoc99_fscanf");
int fault_nanosleep(const struct timespec *t, struct timespec *left) EXPORTED("nanosleep");
void fault_abort(void) EXPORTED("abort");
void fault_exit(int status) EXPORTED("_exit");

int fault_printf(const char *format, ...) {
    va_list args;
    va_start(args, format);
    const long all[NARG] = {(long)stdout, (long)format, (long)args};
    int n = (int)pass(CALL_printf, HERE, all);
    va_end(args);
    return n;
}

int fault_fprintf(FILE *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const long all[NARG] = {(long)out, (long)format, (long)args};
    int n = (int)pass(CALL_fprintf, HERE, all);
    va_end(args);
    return n;
}

int fault_fscanf(FILE *in, const char *format, ...) {
    va_list args;
    va_start(args, format);
    const long all[NARG] = {(long)in, (long)format, (long)args};
    int n = (int)pass(CALL_fscanf, HERE, all);
    va_end(args);
    return n;
}

int fault_nanosleep(const struct timespec *t, struct timespec *left) {
    long long ns = t->tv_sec * 1000000000LL + t->tv_nsec;
    if (is_ours((uintptr_t)HERE))
        ns /= fault_set.hurry;
    struct timespec shorter = {ns / 1000000000, ns % 1000000000};
    return real_nanosleep(&shorter, left);
}

void fault_abort(void) {
    tell_counts();
    ((void (*)(void))dlsym(RTLD_NEXT, "abort"))();
}

void fault_exit(int status) {
    tell_counts();
    ((void (*)(int))dlsym(RTLD_NEXT, "_exit"))(status);
    __builtin_unreachable();
}
