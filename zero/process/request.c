// Turns signals into requests: see request.h.
#include "zero/process/request.h"

#include "kernels/base.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_uint requests, stops, interrupts; // all that a signal handler writes
static int typing_fd = -1;                      // the eventfd of request_typing_begin
static struct sigaction action_between_answers; // what INT does between answers
static double began;                            // when the program began, in base_seconds()

static void on_signal(int number) {
    bool at_once = number == SIGINT || number == SIGQUIT;
    if (at_once && atomic_fetch_add(&interrupts, 1) > 0)
        _exit(128 + number);
    bool save = number == SIGUSR1 || number == SIGUSR2;
    if (!save) {
        atomic_fetch_add(&stops, 1);
        base_stop_waiting();
    }
    atomic_fetch_or(&requests, save ? REQUEST_SAVE : REQUEST_STOP);
}

// Signals that were ignored when the program began, as under nohup. A library may have changed that
// by the time that main begins (UCX, below Open MPI 5, takes HUP), so it is looked up before any
// library runs: by the raw system call and without a sanitizer's checks, which are not ready yet.
static bool was_ignored[32];

__attribute__((no_sanitize_address)) __attribute__((no_sanitize_thread)) static void
look_up_ignored(void) {
    enum { MASK_BYTES = 8 };
    static long action[32]; // the kernel's struct, which begins with the handler
    for (int n = 1; n < 32; n++)
        was_ignored[n] = syscall(SYS_rt_sigaction, n, NULL, action, MASK_BYTES) == 0 &&
                         action[0] == (long)SIG_IGN;
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = look_up_ignored;

static void set_handlers(const int *numbers, size_t count) {
    struct sigaction action = {.sa_flags = SA_RESTART};
    for (size_t i = 0; i < count; i++) {
        action.sa_handler = was_ignored[numbers[i]] ? SIG_IGN : on_signal;
        sigaction(numbers[i], &action, NULL);
    }
}

void request_begin(void) {
    static const int numbers[] = {SIGUSR1, SIGUSR2};
    began = base_seconds();
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    set_handlers(numbers, sizeof numbers / sizeof numbers[0]);
}

void request_on_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU};
    set_handlers(numbers, sizeof numbers / sizeof numbers[0]);
}

void request_answer_begin(void) {
    sigaction(SIGINT, NULL, &action_between_answers);
    set_handlers((const int[]){SIGINT}, 1);
}

void request_answer_end(void) {
    sigaction(SIGINT, &action_between_answers, NULL);
    atomic_fetch_and(&requests, ~(unsigned)REQUEST_STOP);
    atomic_store(&interrupts, 0);
}

static void on_interrupt(int number) {
    int saved_errno = errno;
    (void)number;
    eventfd_write(typing_fd, 1);
    errno = saved_errno;
}

int request_typing_begin(void) {
    typing_fd = was_ignored[SIGINT] ? -1 : eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (typing_fd >= 0)
        sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt, .sa_flags = SA_RESTART},
                  NULL);
    return typing_fd;
}

void request_typing_end(void) {
    if (typing_fd < 0)
        return;
    signal(SIGINT, SIG_DFL);
    close(typing_fd);
    typing_fd = -1;
}

double request_age(void) {
    return base_seconds() - began;
}

void request_make(enum RunRequest request) {
    atomic_fetch_or(&requests, request);
}

atomic_uint *request_all(void) {
    return &requests;
}

unsigned request_stops(void) {
    return atomic_load(&stops);
}
