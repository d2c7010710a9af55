// The wish to stop: a signal asks for it, a rank tells the others in its report (zero.h), and all
// of them stop after the same step.
#ifndef ZERO_RUN_STOP_H
#define ZERO_RUN_STOP_H
#include <signal.h>

// Makes SIGINT and SIGTERM such a wish. A second one ends the process at once.
void stop_on_signals(void);
void stop_request(void); // without a signal
// Not 0 once it is wished; for Rank.stop.
const volatile sig_atomic_t *stop_wish(void);

#endif
