// Other processes of this machine.
#ifndef ZERO_COMM_PROCESS_H
#define ZERO_COMM_PROCESS_H
#include <stdbool.h>
#include <sys/types.h>

// Has it ended? Also where it stays as a zombie, because its parent has not taken notice yet. Where
// walls between containers hide it, it looks gone.
bool process_is_gone(pid_t process);

#endif
