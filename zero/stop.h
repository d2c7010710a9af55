// The wish to stop: SIGINT or SIGTERM asks for it once, and the run saves and ends at its next
// step. A second signal ends the process at once.
#ifndef ZERO_STOP_H
#define ZERO_STOP_H
#include <signal.h>

// From here on signals are caught.
void stop_on_signals(void);

// Not 0: stop. A rank that cannot go on may set it, too.
volatile sig_atomic_t *stop_flag(void);

#endif
