// What record.c notes of a step, and what order.c makes of it.
#ifndef ZERO_TRACE_RECORD_H
#define ZERO_TRACE_RECORD_H
#include "kernels/access.h"
#include "kernels/trace.h"
#include "zero/trace/trace.h"

// ---- noted while it is queued ----

// Bytes that an operation reads or writes: in memory, or at `offset` of a tag's file on NVMe.
struct Touch {
    const void *mem; // NULL: in a file
    uint64_t offset;
    enum Tag file;
    size_t bytes;
    unsigned how; // ACCESS_READ, ACCESS_WRITE, or both
};

// For what operations were queued. number: counts these purposes; 0: there is none.
enum OriginKind { ORIGIN_OTHER, ORIGIN_HOP, ORIGIN_UNIT };
struct Origin {
    uint64_t number;
    enum OriginKind kind;
    const char *name;      // of the hop, or the collective; NULL: the operation's own
    const struct Hop *hop; // NULL: none
    enum ChainKind chain;
    int group; // -1: none
    bool backward;
    size_t micro;
    int unit;         // in the whole model's walk; -1: none
    uint64_t sent;    // bytes to other ranks; of an operation only the first of its work has them,
    const char *over; // along this axis; NULL: none
    int others;       // to so many
};

enum { TRACE_QUEUES = 2 * NQUEUE }; // the device's, then the host's

// An operation of a queue, a record of an event or a wait for one, or TRACE_HOST_WAIT.
struct Entry {
    uint64_t number, work; // work: that of its Origin; 0: none
    enum Queue queue;
    bool on_host;
    const char *name;
    struct EventLabel event;
    bool in_collective; // other ranks may read what it reads until the collective's last entry
    size_t touch, ntouch;
};

// A step's notes. Two steps are noted at a time: what the host updates beside a step is queued at
// the end of the step before.
struct StepNotes {
    uint64_t step;
    struct Entry *entry;
    struct Touch *touch;
    struct Origin *work;
    size_t n, ntouch, nwork, room, touch_room, work_room;
};

struct Origin *notes_find_work(const struct StepNotes *n, uint64_t number); // NULL: none

struct CommSpy {
    struct Comm *comm;
    const struct CommOps *real;
    struct CommOps ops;
};

struct ZeroTrace {
    struct BlockLog log;
    struct Tier *tiers;
    struct ZeroTraceParts parts;
    struct Device *device; // outlives parts.zero
    struct HopWatch watch;
    struct CommSpy spy[ZERO_TRACE_COMMS];
    struct StepNotes notes[2];          // of odd and even steps
    uint64_t numbers, works;            // the last numbers of an entry and of an Origin
    struct Origin work;                 // the hop at hand, or the collective outside of hops
    struct Origin unit;                 // the pass at hand
    struct Touch pending[ACCESSES_MAX]; // of the next operation, whose arguments do not show them
    int npending;
    struct Comm *collective; // that is being queued; NULL: none
};

// ---- made of it ----

// An operation of the file: what one queue did for a hop, a pass of a unit or something else
// without records or waits in between.
struct Operation {
    struct Origin work;
    const char *name;
    int queue;                   // < TRACE_QUEUES
    double begin, end;           // base_seconds
    double kernel;               // bytes that kernels move
    uint64_t in, out;            // over the bus
    uint64_t read, written;      // from and to disk
    double waited;               // seconds
    const char *event;           // the one that it waited for longest; NULL: none
    int after[TRACE_QUEUES + 1]; // the operations behind which it runs, ended by -1
    int clock[TRACE_QUEUES];     // the last of each queue that is done before it; -1: none
};

// A touch of an operation, in a block of the log.
struct OpTouch {
    int operation, block;
    uint64_t offset;
    size_t bytes;
    unsigned how;
};

struct Operations {
    int n;
    struct Operation *operation;
    size_t ntouch;
    struct OpTouch *touch; // in queued order, until write_operations sorts them
    double begin;          // of the first hop or unit, base_seconds: the step's
    int lost;              // operations that the rings hold no longer
};

// step: of which. free operation and touch.
struct Operations order_operations(const struct ZeroTrace *t, uint64_t step);

// Bytes of a block that are in use from one operation to another; -1: since before the step, or
// beyond.
struct Life {
    int block;
    uint64_t offset;
    size_t bytes;
    int group; // that of the operation which begins it; -1: none
    int from, until;
};
struct Lives {
    size_t n;
    struct Life *life;
};
struct Lives lives_of(const struct ZeroTrace *t, const struct Operations *p); // free life

#endif
