// An asynchronous queue of the CPU device: a ring of calls and the worker thread that makes them in
// order. See queue.c.
#ifndef KERNELS_CPU_QUEUE_H
#define KERNELS_CPU_QUEUE_H
#include "kernels/device.h"

struct Cpu;

enum { QUEUE_ARGS_BYTES = 320 };

typedef void QueueCall(struct Cpu *, const void *args); // args: the copy made by queue_push

struct Stream *queue_open(struct Cpu *cpu, enum Queue q);
struct Device *queue_device(struct Stream *s);
size_t queue_bytes(void);           // memory of a queue: its ring is resident from the start
void queue_close(struct Stream *s); // after all pushed calls have run

// Puts call(cpu, copy of args) at the end of the queue. args_bytes at most QUEUE_ARGS_BYTES. A full
// ring blocks until half of it is free. `name` is for traces, and must live as long as the program.
void queue_push(struct Stream *s, const char *name, QueueCall *call, const void *args,
                size_t args_bytes);
void queue_sync(struct Stream *s); // returns when all calls pushed before have run
void queue_set_delay(struct Stream *s, struct QueueDelay delay);

struct Event *event_open(void);
void event_close(struct Event *e);
void event_record(struct Stream *s, struct Event *e);
void event_wait(struct Stream *s, struct Event *e); // the queue waits, not the caller
void event_sync(struct Event *e);                   // the caller waits
bool event_done(struct Event *e);                   // true if no wait is needed

#endif
