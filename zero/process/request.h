// Wishes: what a signal, a clock or an error asks of the run, on whatever rank.
//
// A rank sends its wishes with its report of a step (zero.h), every rank gets what any of them
// wishes, and so all of them save, or stop, after the same step. HUP, TERM, XCPU, INT and QUIT wish
// to stop, which saves; USR1 and USR2 wish to save and go on. A signal that was ignored when the
// program was started, as nohup does with HUP, stays ignored.
//
// Sent by zero/rank/rank.c, heard by zero/train/loop.c and zero/train/trainer.c.
#ifndef ZERO_PROCESS_REQUEST_H
#define ZERO_PROCESS_REQUEST_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Bits of a rank's word.
enum RunRequest { REQUEST_SAVE = 1, REQUEST_STOP = 2 };
// Further ones, which tell how far a checkpoint is that is written meanwhile (zero/train/saver.h).
enum SaveWord { WORD_WRITING = 4, WORD_FAILED = 8, WORD_NAMED = 16 };

// What a run does not end by, from the program's start: USR1 and USR2, which are wishes; XFSZ, so
// that a file past `ulimit -f` is a write that fails; and PIPE, a reader that goes away.
void request_begin(void);

double request_age(void); // seconds since then

// From the first step on, when there is something to save. A second INT or QUIT ends the process at
// once.
void request_on_signals(void);

void request_make(enum RunRequest wish); // without a signal

// This process's wishes, for Rank.wishes. All its ranks share them.
atomic_uint *request_all(void);

// How many signals wished to stop so far.
unsigned request_stops(void);

// A step's word: what the ranks of this process wish, of which the wish to save is told once; and
// what this rank tells besides. NULL: nothing.
static inline uint64_t request_word(atomic_uint *wishes, const atomic_uint *own) {
    unsigned word = wishes ? atomic_fetch_and(wishes, ~(unsigned)REQUEST_SAVE) : 0;
    return word | (own ? atomic_load(own) : 0);
}

// Whether a rank of this process wishes to stop. NULL: no.
static inline uint64_t request_to_stop(const atomic_uint *wishes) {
    return wishes ? atomic_load(wishes) & REQUEST_STOP : 0;
}

#endif
