// From a signal to the wish to stop: see stop.h.
#include "zero/run/stop.h"

#include <unistd.h>

static volatile sig_atomic_t requested; // the one thing a signal can reach

static void on_signal(int number) {
    if (requested)
        _exit(128 + number);
    requested = 1;
}

void stop_on_signals(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void stop_request(void) {
    requested = 1;
}

const volatile sig_atomic_t *stop_wish(void) {
    return &requested;
}
