// Watches the other ranks of a job of processes: which are gone, or late, and which one reports it.
//
// MPI would wait for ever. So while a rank waits it checks for three things: a rank whose process
// is gone, one that reports a failure, and the time-out. One rank prints the error, and MPI_Abort
// ends the job. In a job with several groups a rank may be late because it waits in another group:
// whoever is about to name it asks first, and a rank that waits answers.
//
// Called by comm/mpi.c, and through struct CommOps. Read next: wait.h.
#include "zero/comm/mpi_end.h"
#include "zero/comm/wait.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static const double ROLL_S = 1;   // for an answer to a roll call: ten checks of the other's watcher
static const double ANSWER_S = 1; // for an answer to the question whether a rank waits, likewise

void mpi_sleep_us(unsigned us) {
    nanosleep(&(struct timespec){us / 1000000, (long)(us % 1000000) * 1000}, NULL);
}

// ---- failing ----

static void exit_on_alarm(int number) {
    (void)number;
    _exit(2);
}

// Tells all others that this rank ends the job: those that wait for it then end, too, even if the
// launcher gives it time to save what can no longer be saved. MPI_Abort asks the launcher to end
// the job, which may be busy doing so: the process does not wait long for the answer.
void mpi_abort(struct Comm *comm) {
    int me = comm_job_rank(comm, comm->rank), size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int r = 0; r < size; r++) {
        MPI_Request ignored;
        if (r != me)
            MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_FAILED, MPI_COMM_WORLD, &ignored);
    }
    for (int i = 0, found; i < 20; i++) { // time for MPI to send
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILED, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        mpi_sleep_us(5000);
    }
    signal(SIGALRM, exit_on_alarm);
    alarm(1);
    MPI_Abort(MPI_COMM_WORLD, 2);
    _exit(2);
}

bool mpi_is_gone(const struct MpiComm *c, int rank) {
    return c->process[rank] && process_is_gone(c->process[rank]);
}

// Ends this rank if another one has printed why the job ends.
static void leave_if_failed(struct MpiComm *c) {
    int failed;
    MPI_Iprobe(MPI_ANY_SOURCE, TAG_FAILED, MPI_COMM_WORLD, &failed, MPI_STATUS_IGNORE);
    if (failed)
        comm_abort(&c->comm);
}

// All ranks see a failure at about the same time, and one line is enough: the lowest rank reports
// it, the next one only if nothing comes from it. A rank may wait for ranks that wait themselves,
// so the more it misses the later it reports. Only one of a rank's threads returns.
void mpi_elect_reporter(struct MpiComm *c, int missing_ranks) {
    pthread_mutex_lock(c->report_lock); // until the process ends
    double seconds = fmin(0.03 * comm_job_rank(&c->comm, c->comm.rank), 0.3) +
                     fmin(0.4 * (missing_ranks - 1), 1.2);
    for (double until = base_seconds() + seconds; base_seconds() < until; mpi_sleep_us(5000))
        leave_if_failed(c);
}

static bool is_pending(MPI_Request request) {
    int done = 1;
    if (request != MPI_REQUEST_NULL)
        MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    return !done;
}

// Ends the job with an error line that names the ranks that `named` marks. seconds: how long they
// have given no sign; 0: their processes are gone.
static _Noreturn void fail_naming_ranks(struct MpiComm *c, const bool *named, const char *what,
                                        double seconds) {
    char after[32] = "";
    if (seconds > 0)
        snprintf(after, sizeof after, " for %g s", seconds);
    const char *action =
        seconds > 0 ? "resume it if it is stopped, or raise --comm-timeout" : comm_lost_advice;
    comm_fail(&c->comm, E_RANK_SILENT, "collective %llu, %s of %llu bytes: %s%s%s; %s",
              (unsigned long long)c->now.sequence, collective_name(c->now.collective),
              (unsigned long long)c->now.bytes, what, comm_name_ranks(&c->comm, named), after,
              action);
}

// Answers all ranks that ask whether this one waits.
static void answer_wait_questions(void) {
    MPI_Message question;
    MPI_Status from;
    int found;
    while (MPI_Improbe(MPI_ANY_SOURCE, TAG_ASKED, MPI_COMM_WORLD, &found, &question, &from),
           found) {
        MPI_Mrecv(NULL, 0, MPI_BYTE, &question, &from);
        MPI_Send(NULL, 0, MPI_BYTE, from.MPI_SOURCE, TAG_WAITS, MPI_COMM_WORLD);
    }
}

// Removes from `missing` the ranks that wait themselves. Returns how many are left.
static int excuse_waiting_ranks(struct MpiComm *c, bool *missing) {
    int size = c->comm.size, count = 0;
    for (int r = 0; r < size; r++) {
        MPI_Request ignored;
        count += missing[r];
        if (missing[r])
            MPI_Isend(NULL, 0, MPI_BYTE, comm_job_rank(&c->comm, r), TAG_ASKED, MPI_COMM_WORLD,
                      &ignored);
    }
    for (double until = base_seconds() + ANSWER_S; count && base_seconds() < until;
         mpi_sleep_us(5000)) {
        leave_if_failed(c);
        answer_wait_questions();
        for (int r = 0; r < size; r++) {
            int rank = comm_job_rank(&c->comm, r), waits = 0;
            MPI_Message answer; // another queue of this rank may wait for it, too
            if (missing[r])
                MPI_Improbe(rank, TAG_WAITS, MPI_COMM_WORLD, &waits, &answer, MPI_STATUS_IGNORE);
            if (!waits)
                continue;
            MPI_Mrecv(NULL, 0, MPI_BYTE, &answer, MPI_STATUS_IGNORE);
            missing[r] = false;
            count--;
        }
    }
    return count;
}

// A rank of the same exchange that waits for a third one is excused like any other.
void mpi_give_up(struct MpiComm *c, bool last) {
    int size = c->comm.size, count = 0;
    bool *missing = base_alloc_zeroed((size_t)size * sizeof *missing);
    for (int r = 0; r < size; r++) {
        missing[r] = is_pending(c->request[r]);
        count += missing[r];
    }
    bool all_received = count == 0;
    for (int r = 0; r < size && all_received; r++) {
        missing[r] = is_pending(c->request[size + r]); // not all was sent
        count += missing[r];
    }
    if (!last && !excuse_waiting_ranks(c, missing)) {
        free(missing);
        return;
    }
    mpi_elect_reporter(c, count);
    fail_naming_ranks(c, missing, "no sign of rank", c->comm.timeout_s);
}

static int mark_gone_ranks(struct MpiComm *c, bool *gone) {
    int count = 0;
    for (int r = 0; r < c->comm.size; r++) {
        gone[r] = mpi_is_gone(c, r);
        count += gone[r];
    }
    return count;
}

void mpi_watch(struct MpiComm *c) {
    leave_if_failed(c);
    answer_wait_questions();
    bool *gone = base_alloc_zeroed((size_t)c->comm.size * sizeof *gone);
    if (mark_gone_ranks(c, gone)) {
        mpi_elect_reporter(c, 1);
        fail_naming_ranks(c, gone, "lost the process of rank", 0);
    }
    free(gone);
}

// ---- the ranks' hosts ----

void mpi_claim(struct Comm *comm) {
    mpi_elect_reporter((struct MpiComm *)comm, 1);
}

// Tells all ranks that have called the roll how far this one is.
static void answer_roll_calls(const struct MpiComm *c, uint64_t begun) {
    MPI_Message call;
    MPI_Status from;
    int found;
    while (MPI_Improbe(MPI_ANY_SOURCE, TAG_ROLL, c->ranks, &found, &call, &from), found) {
        MPI_Mrecv(NULL, 0, MPI_BYTE, &call, &from);
        MPI_Send(&begun, 1, MPI_UINT64_T, from.MPI_SOURCE, TAG_HERE, c->ranks);
    }
}

int mpi_heartbeat(struct Comm *comm, uint64_t begun, bool *gone) {
    struct MpiComm *c = (struct MpiComm *)comm;
    leave_if_failed(c);
    answer_roll_calls(c, begun);
    return mark_gone_ranks(c, gone);
}

// Does not clean up requests that are still under way: the process ends, too.
void mpi_collect_progress(struct Comm *comm, uint64_t mine, uint64_t *begun) {
    struct MpiComm *c = (struct MpiComm *)comm;
    size_t size = (size_t)comm->size;
    uint64_t *answers = base_alloc(size * sizeof *answers);
    MPI_Request *in = base_alloc(size * sizeof *in), ignored;
    int done = 0;
    for (int r = 0; r < comm->size; r++) {
        answers[r] = r == comm->rank ? mine : COMM_NO_SIGN;
        in[r] = MPI_REQUEST_NULL;
        if (r == comm->rank)
            continue;
        MPI_Irecv(&answers[r], 1, MPI_UINT64_T, r, TAG_HERE, c->ranks, &in[r]);
        MPI_Isend(NULL, 0, MPI_BYTE, r, TAG_ROLL, c->ranks, &ignored);
    }
    for (double until = base_seconds() + ROLL_S; !done && base_seconds() < until;
         mpi_sleep_us(5000)) {
        MPI_Testall(comm->size, in, &done, MPI_STATUSES_IGNORE);
        leave_if_failed(c);
        answer_roll_calls(c, mine);
    }
    for (int r = 0; r < comm->size; r++)
        begun[r] = is_pending(in[r]) ? COMM_NO_SIGN : answers[r];
}
