// Requests: what a signal, a clock or an error asks of the run, on any rank.
//
// A rank sends its requests with its report of a step (zero.h), every rank receives those of all
// ranks, and so all of them save, or stop, after the same step. HUP, TERM, XCPU, INT and QUIT
// request a stop, which saves; USR1 and USR2 request a save, and the run goes on. A signal that was
// ignored when the program started, as nohup does with HUP, stays ignored.
//
// Sent by zero/rank/rank.c, read by zero/train/loop.c and zero/train/trainer.c.
#ifndef ZERO_PROCESS_REQUEST_H
#define ZERO_PROCESS_REQUEST_H
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Bits of a rank's word.
enum RunRequest { REQUEST_SAVE = 1, REQUEST_STOP = 2 };
// Further bits: how far a checkpoint is that is being written meanwhile (zero/train/saver.h).
enum SaveWord { WORD_WRITING = 4, WORD_FAILED = 8, WORD_NAMED = 16 };

// Handles signals that must not end a run, from the program's start: USR1 and USR2 are requests;
// XFSZ is ignored, so that writes past `ulimit -f` fail; so is PIPE, when a reader goes away.
void request_begin(void);

double request_age(void); // seconds since then

// Handles the stop signals, from the first step on, when there is something to save. A second INT
// or QUIT ends the process at once.
void request_on_signals(void);

// While an answer is made: INT requests a stop, of the answer, and a second one ends the process.
// request_answer_end takes the request back, and INT does again what it did before.
void request_answer_begin(void);
void request_answer_end(void);

// While a person types, between answers: INT makes a descriptor readable, an eventfd that does not
// block, and does nothing else. Returns the descriptor; -1: INT stays as it is, ignored since the
// program started or for want of a descriptor. request_typing_end closes it; INT ends the process.
int request_typing_begin(void);
void request_typing_end(void);

void request_make(enum RunRequest request); // without a signal

// Returns this process's requests (enum RunRequest), for Rank.requests. All its ranks share them.
atomic_uint *request_all(void);

// Returns how many signals have requested a stop so far.
unsigned request_stops(void);

// Returns a step's word: the requests of this process's ranks, of which a request to save is taken
// only once; and the bits of this rank alone. NULL: none.
static inline uint64_t request_word(atomic_uint *requests, const atomic_uint *own) {
    unsigned word = requests ? atomic_fetch_and(requests, ~(unsigned)REQUEST_SAVE) : 0;
    return word | (own ? atomic_load(own) : 0);
}

// Nonzero if a rank of this process requests a stop. NULL: none does.
static inline uint64_t request_to_stop(const atomic_uint *requests) {
    return requests ? atomic_load(requests) & REQUEST_STOP : 0;
}

#endif
