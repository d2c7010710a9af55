// Other processes of this machine.
#ifndef ZERO_COMM_PROCESS_H
#define ZERO_COMM_PROCESS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// Has it ended? Also where it stays as a zombie, because its parent has not taken notice yet. Where
// walls between containers hide it, it looks gone.
bool process_is_gone(pid_t process);

// Names the ranks that the launcher of this process started here and that are stopped (SIGSTOP):
// " rank 2 (process 1234 is stopped), ...", as far as there is room. Returns how many they are.
int process_name_stopped(char *text, size_t bytes);

#endif
