// An outlet: what is printed, on its way to a reader who may be slow, or not read at all.
//
// Training must never wait for whoever looks at it: a terminal that was stopped with Ctrl-S, a
// pager that is not scrolled on, a pipe whose reader hangs. So what is printed goes into a buffer
// of a bounded size, and a thread empties it. Where the buffer is full, the oldest lines are
// dropped, whole, and counted; the count is printed where they are missing, as soon as there is
// room. What must not be lost is in log.jsonl, which does not come this way.
//
// The descriptor is written to as it was found, in calls that wait. O_NONBLOCK would belong to the
// open file, which a shell, `tee` or another rank shares: they would lose lines by it.
//
// Printing stays as it is: an outlet has streams (FILE *) for printf and its like. Their lock is
// never held while anybody waits, so that a reader that hangs holds up neither the threads that
// print nor exit(). Opened by base.c for standard output and standard error. Nothing is below this
// file.
#ifndef KERNELS_OUTLET_H
#define KERNELS_OUTLET_H
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct Outlet;

// Begins to write to `fd`, through a buffer of `bytes` bytes. `name` is what the descriptor is
// called in the line that counts what was dropped. An outlet lives as long as the process. Errors:
// -ENOMEM, -EAGAIN without a thread.
int outlet_open(struct Outlet **out, int fd, const char *name, size_t bytes);

// One of at most two streams of the outlet, for those whose two outputs are one file: lines of both
// keep their order, and stay whole as those of threads that share a stream do. NULL: no memory.
FILE *outlet_stream(struct Outlet *o);

// Waits until all that was flushed into the streams is written: for ever, but no longer than a
// second once there is a hurry; NULL: no longer than a second. Returns 0, -EAGAIN if
// something is left, or the first error of writing (-errno), after which all is dropped in silence.
int outlet_wait(struct Outlet *o, bool (*hurry)(void));

#endif
