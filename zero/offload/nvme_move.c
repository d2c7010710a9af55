// Moves pieces of the NVMe tier's files: cut into requests, kept under way together, each result
// checked before it is used.
//
// O_DIRECT takes only whole units of the disk, at aligned addresses. So a piece is cut in three:
// the unit that it begins in, those that it covers, and the unit that it ends in. The middle goes
// straight between disk and caller in requests of up to --nvme-block bytes, or through an aligned
// buffer if the caller's address is not aligned. A unit that is covered in part is read whole; to
// write it, the new bytes are copied over the old ones and the whole is written back.
//
// A request may end SHORT. The bytes that count as done are then rounded down to whole units, since
// the disk would refuse to go on from anywhere else, and the rest is requested again. Two
// well-known ways of losing bytes are avoided here: to believe that a completion is complete, and
// to go on from exactly where it ended.
//
// With --check-io a sum of each unit is kept when it is written and compared whenever it is read,
// also before a part of it is replaced. Called by the queues of offloaded state. Read next:
// nvme_ring.c.
#include "zero/offload/nvme_move.h"
#include "kernels/hash.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

// Attempts in a row without progress before a request is given up.
enum { ATTEMPTS = 1000 };

// One call of nvme_read or nvme_write.
struct Transfer {
    struct Nvme *n;
    struct Lane *lane;
    bool write;
    const struct NvmePiece *piece;
    int count, at;     // pieces, and the index of the one being cut
    size_t piece_done; // bytes of that one which are cut
    size_t under_way;  // number of jobs
    int code;          // the first error
    struct Error *e;
};

static int fail_job(struct Transfer *t, const struct NvmeJob *j, int code, const char *cause) {
    if (t->code)
        return t->code; // only the first one is reported
    bool writes = j->kind == JOB_WRITE;
    t->code = error_set(t->e, code, E_NVME_IO,
                        "cannot %s %s at offset %llu (%zu bytes, %zu of them done): %s; check the "
                        "disk of --nvme-path",
                        writes ? "write" : "read", t->n->file[j->file].name,
                        (unsigned long long)j->offset, j->bytes, j->done, cause);
    return t->code;
}

// ---- sums ----

static uint64_t unit_sum(const char *mem) {
    uint64_t sum = hash64(mem, NVME_UNIT_BYTES, 0);
    return sum ? sum : 1; // 0 means no sum
}

static void compare_sums(struct Transfer *t, struct NvmeJob *j) {
    const uint64_t *sums = t->n->file[j->file].sums;
    for (size_t at = 0; sums && at < j->bytes; at += NVME_UNIT_BYTES) {
        uint64_t kept = sums[(j->offset + at) / NVME_UNIT_BYTES];
        uint64_t found = kept ? unit_sum(j->mem + at) : 0;
        if (found == kept)
            continue;
        struct NvmeJob unit = *j;
        unit.offset += at;
        unit.bytes = NVME_UNIT_BYTES;
        unit.done = 0;
        char cause[128];
        snprintf(cause, sizeof cause,
                 "the disk returned other bytes than were written there (sum %016llx, not %016llx)",
                 (unsigned long long)found, (unsigned long long)kept);
        fail_job(t, &unit, -EIO, cause);
        return;
    }
}

// ---- requests ----

static int find_pinned_range(const struct Transfer *t, const char *mem, size_t bytes) {
    for (unsigned i = 0; t->lane->pinned && i < t->n->nrange; i++) {
        const char *base = t->n->ranges[i].iov_base;
        if (mem >= base && mem + bytes <= base + t->n->ranges[i].iov_len)
            return (int)i;
    }
    return -1;
}

static void submit_job(struct Transfer *t, const struct NvmeJob *j) {
    struct NvmeRequest r = {
        .write = j->kind == JOB_WRITE,
        .fd = t->n->file[j->file].fd,
        .mem = j->mem + j->done,
        .bytes = j->bytes - j->done,
        .offset = j->offset + j->done,
        .name = (uint64_t)(j - t->lane->job),
    };
    r.buffer = find_pinned_range(t, r.mem, r.bytes);
    t->lane->queue->disk->submit(t->lane->queue, &r);
}

// Takes the next job of the transfer from the idle ones: a unit that is covered in part, or else as
// many whole units as a request may have.
static struct NvmeJob *cut_job(struct Transfer *t) {
    const struct NvmePiece *p = &t->piece[t->at];
    const struct NvmeSettings *s = &t->n->settings;
    int slot = t->lane->idle[--t->lane->nidle];
    struct NvmeJob *j = &t->lane->job[slot];
    uint64_t from = p->offset + t->piece_done;
    size_t left = p->bytes - t->piece_done, skip = from % NVME_UNIT_BYTES;
    char *user = (char *)p->mem + t->piece_done, *bounce = t->lane->bounce + slot * s->block_bytes;
    bool partial = skip || left < NVME_UNIT_BYTES;
    bool direct = !partial && (uintptr_t)user % t->n->memory_align == 0;
    size_t whole = size_min(left - left % NVME_UNIT_BYTES, s->block_bytes);
    *j = (struct NvmeJob){
        .kind = !t->write ? JOB_READ
                : partial ? JOB_READ_OLD
                          : JOB_WRITE,
        .file = p->file,
        .offset = from - skip,
        .bytes = partial ? NVME_UNIT_BYTES : whole,
        .mem = direct ? user : bounce,
        .user = direct ? NULL : user,
        .user_from = skip,
        .user_bytes = partial ? size_min(left, NVME_UNIT_BYTES - skip) : whole,
    };
    t->piece_done += j->user_bytes;
    return j;
}

// Copies the caller's bytes to an aligned buffer, if the job has one, and keeps the units' sums.
static void prepare_write(struct Transfer *t, struct NvmeJob *j) {
    if (j->user)
        memcpy(j->mem + j->user_from, j->user, j->user_bytes);
    uint64_t *sums = t->n->file[j->file].sums;
    for (size_t at = 0; sums && at < j->bytes; at += NVME_UNIT_BYTES)
        sums[(j->offset + at) / NVME_UNIT_BYTES] = unit_sum(j->mem + at);
}

// Ends a job's current request, all bytes of which have come or gone. True if another one follows.
static bool end_job_request(struct Transfer *t, struct NvmeJob *j) {
    if (j->kind == JOB_WRITE)
        return false;
    compare_sums(t, j);
    if (t->code)
        return false;
    if (j->kind == JOB_READ) {
        if (j->user)
            memcpy(j->user, j->mem + j->user_from, j->user_bytes);
        return false;
    }
    j->kind = JOB_WRITE;
    j->done = 0;
    prepare_write(t, j);
    return true;
}

// Handles the result of a request: bytes, or -errno. True if the job has more to request.
static bool handle_result(struct Transfer *t, struct NvmeJob *j, int result) {
    size_t left = j->bytes - j->done;
    if (result < 0 && result != -EAGAIN && result != -EINTR)
        fail_job(t, j, result, strerror(-result));
    else if (result == 0)
        fail_job(t, j, -EIO,
                 j->kind == JOB_WRITE ? "the disk took nothing" : "the file became shorter");
    else if (result > 0 && (size_t)result > left)
        fail_job(t, j, -EIO, "the disk says that it moved more than it was asked to");
    if (t->code)
        return false;
    size_t moved = result < 0 ? 0 : (size_t)result;
    moved -= moved == left ? 0 : moved % NVME_UNIT_BYTES;
    j->attempts = moved ? 0 : j->attempts + 1;
    if (j->attempts == ATTEMPTS)
        return fail_job(t, j, result < 0 ? result : -EIO, "no progress in 1000 attempts"), false;
    if (result == -EAGAIN)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    j->done += moved;
    return j->done < j->bytes || end_job_request(t, j);
}

// The queue itself has failed: no request under way will end, nor any later one.
static int fail_transfer(struct Transfer *t) {
    t->under_way = 0;
    if (t->code)
        return t->code;
    t->code = error_set(t->e, t->lane->queue_error, E_NVME_IO,
                        "cannot %s %s: io_uring: %s; check the disk of --nvme-path, and dmesg",
                        t->write ? "write" : "read", t->n->file[t->piece[0].file].name,
                        strerror(-t->lane->queue_error));
    return t->code;
}

// Takes one completion: requests the rest of its job, or frees the job. A lane runs one transfer
// at a time, so the job is t's.
static void handle_completion(struct Transfer *t) {
    struct NvmeDone done = t->lane->queue->disk->wait(t->lane->queue);
    if (done.name == NVME_QUEUE) {
        t->lane->queue_error = done.result;
        fail_transfer(t);
        return;
    }
    CHECK(done.name < t->n->settings.depth, "a completion of nothing: %llu",
          (unsigned long long)done.name);
    struct NvmeJob *j = &t->lane->job[done.name];
    if (handle_result(t, j, done.result)) {
        submit_job(t, j);
        return;
    }
    t->lane->idle[t->lane->nidle++] = (int)done.name;
    t->under_way--;
}

// ---- pieces ----

static struct Claim piece_claim(const struct NvmePiece *p) {
    return (struct Claim){p->file, p->offset - p->offset % NVME_UNIT_BYTES,
                          round_up(p->offset + p->bytes, NVME_UNIT_BYTES)};
}

static bool overlaps_any(const struct Claim *a, const struct Claim *b, int count) {
    for (int i = 0; i < count; i++)
        if (a->file == b[i].file && a->begin < b[i].end && b[i].begin < a->end)
            return true;
    return false;
}

// Waits until the other direction touches none of the units of this transfer. All units are claimed
// at once, so that two transfers never wait for each other.
static void claim_units(struct Transfer *t) {
    struct Lane *other = t->write ? &t->n->reader : &t->n->writer, *own = t->lane;
    for (int i = 0; i < t->count; i++)
        own->claim[i] = piece_claim(&t->piece[i]);
    pthread_mutex_lock(&t->n->lock);
    for (int i = 0; i < t->count;) {
        if (!overlaps_any(&own->claim[i], other->claim, other->nclaim)) {
            i++;
            continue;
        }
        pthread_cond_wait(&t->n->released, &t->n->lock);
        i = 0;
    }
    own->nclaim = t->count;
    pthread_mutex_unlock(&t->n->lock);
}

static void release_units(struct Transfer *t) {
    pthread_mutex_lock(&t->n->lock);
    t->lane->nclaim = 0;
    pthread_cond_broadcast(&t->n->released);
    pthread_mutex_unlock(&t->n->lock);
}

// Two pieces that are written may share a unit; then the second waits until the first is on disk.
static void wait_for_neighbours(struct Transfer *t) {
    if (t->write && overlaps_any(&t->lane->claim[t->at], t->lane->claim, t->at))
        while (t->under_way)
            handle_completion(t);
}

static void start_jobs(struct Transfer *t) {
    while (!t->code && t->at < t->count && t->lane->nidle) {
        if (t->piece_done == t->piece[t->at].bytes) {
            t->at++;
            t->piece_done = 0;
            continue;
        }
        if (!t->piece_done)
            wait_for_neighbours(t);
        if (t->code)
            return;
        struct NvmeJob *j = cut_job(t);
        if (j->kind == JOB_WRITE)
            prepare_write(t, j);
        t->under_way++;
        submit_job(t, j);
    }
}

// The kernel may refuse to pin memory (RLIMIT_MEMLOCK): then it is used unpinned.
static void pin_buffers(struct Transfer *t) {
    struct Lane *l = t->lane;
    if (l->pin_tried)
        return;
    l->pin_tried = true;
    if (!t->n->nrange)
        return;
    int code = l->queue->disk->pin(l->queue, t->n->ranges, t->n->nrange);
    l->pinned = code == 0;
    if (code)
        log_line(
            LOG_VERBOSE,
            "nvme: cannot register %u buffers with io_uring: %s; the run uses them unregistered",
            t->n->nrange, strerror(-code));
}

static void check_pieces(const struct Transfer *t) {
    CHECK(t->count >= 0 && t->count <= NVME_PIECES, "%d pieces in one call", t->count);
    for (int i = 0; i < t->count; i++) {
        const struct NvmePiece *p = &t->piece[i];
        const struct NvmeFile *f = &t->n->file[p->file];
        CHECK(f->fd >= 0, "there is no file of %s", tag_name(p->file));
        CHECK(p->offset <= f->bytes && p->bytes <= f->bytes - p->offset,
              "%s has %llu bytes: %zu at %llu are not in it", f->name, (unsigned long long)f->bytes,
              p->bytes, (unsigned long long)p->offset);
    }
}

static int run_transfer(struct Transfer *t) {
    check_pieces(t);
    if (t->lane->queue_error)
        return fail_transfer(t);
    pin_buffers(t);
    claim_units(t);
    for (start_jobs(t); t->under_way; start_jobs(t))
        handle_completion(t); // after an error too: the kernel still uses the caller's memory
    release_units(t);
    return t->code;
}

int nvme_read(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e) {
    struct Transfer t = {.n = n, .lane = &n->reader, .piece = pieces, .count = count, .e = e};
    return run_transfer(&t);
}

int nvme_write(struct Nvme *n, const struct NvmePiece *pieces, int count, struct Error *e) {
    struct Transfer t = {
        .n = n, .lane = &n->writer, .write = true, .piece = pieces, .count = count, .e = e};
    return run_transfer(&t);
}
