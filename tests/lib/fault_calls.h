// The calls that the injector of faults stands in for (fault.c): name, class, how the call says
// that it failed, and which argument is the stdio stream that remembers an error (from 1; 0: none).
//
// A class is what a trial sweeps over; cuda's calls are the simulator's (tests/cusim/faults.cc).
// What ./train calls is among them: scripts/faults/faults.sh lists what no trial reached.
#ifndef TESTS_LIB_FAULT_CALLS_H
#define TESTS_LIB_FAULT_CALLS_H
#include "tests/lib/own_code.h"

#include <stdbool.h>
#include <stdint.h>

// clang-format off
#define FAULT_CALLS(X) \
    X(open, OPEN, MINUS, 0) X(open64, OPEN, MINUS, 0) X(__open_2, OPEN, MINUS, 0) \
    X(openat, OPEN, MINUS, 0) X(openat64, OPEN, MINUS, 0) X(creat, OPEN, MINUS, 0) \
    X(fopen, OPEN, ZERO, 0) X(fopen64, OPEN, ZERO, 0) X(fdopen, OPEN, ZERO, 0) \
    X(mkostemp, OPEN, MINUS, 0) X(mkstemp, OPEN, MINUS, 0) X(memfd_create, OPEN, MINUS, 0) \
    X(read, READ, MINUS, 0) X(pread, READ, MINUS, 0) X(pread64, READ, MINUS, 0) \
    X(fread, READ, ZERO, 4) X(fgets, READ, ZERO, 3) X(__getdelim, READ, MINUS, 4) \
    X(getdelim, READ, MINUS, 4) X(getline, READ, MINUS, 3) X(readlink, READ, MINUS, 0) \
    X(write, WRITE, MINUS, 0) X(pwrite, WRITE, MINUS, 0) X(pwrite64, WRITE, MINUS, 0) \
    X(fwrite, WRITE, ZERO, 4) X(fputs, WRITE, MINUS, 2) X(fputc, WRITE, MINUS, 2) \
    X(puts, WRITE, MINUS, 0) X(putc, WRITE, MINUS, 2) X(fflush, WRITE, MINUS, 1) \
    X(vfprintf, WRITE, MINUS, 1) X(fallocate, WRITE, MINUS, 0) \
    X(posix_fallocate, WRITE, CODE, 0) \
    X(fsync, FSYNC, MINUS, 0) X(fdatasync, FSYNC, MINUS, 0) X(syncfs, FSYNC, MINUS, 0) \
    X(sync_file_range, FSYNC, MINUS, 0) \
    X(rename, RENAME, MINUS, 0) X(renameat, RENAME, MINUS, 0) X(renameat2, RENAME, MINUS, 0) \
    X(link, RENAME, MINUS, 0) X(linkat, RENAME, MINUS, 0) X(symlink, RENAME, MINUS, 0) \
    X(unlink, UNLINK, MINUS, 0) X(unlinkat, UNLINK, MINUS, 0) X(rmdir, UNLINK, MINUS, 0) \
    X(remove, UNLINK, MINUS, 0) \
    X(mkdir, MKDIR, MINUS, 0) X(mkdirat, MKDIR, MINUS, 0) X(mkdtemp, MKDIR, ZERO, 0) \
    X(mmap, MMAP, MINUS, 0) X(mmap64, MMAP, MINUS, 0) X(mremap, MMAP, MINUS, 0) \
    X(madvise, MMAP, MINUS, 0) X(mlock, MMAP, MINUS, 0) \
    X(malloc, MALLOC, ZERO, 0) X(calloc, MALLOC, ZERO, 0) X(realloc, MALLOC, ZERO, 0) \
    X(aligned_alloc, MALLOC, ZERO, 0) X(posix_memalign, MALLOC, CODE, 0) \
    X(vasprintf, MALLOC, MINUS, 0) X(strdup, MALLOC, ZERO, 0) X(realpath, MALLOC, ZERO, 0) \
    X(io_uring_queue_init, URING, NEGATIVE, 0) X(io_uring_submit, URING, NEGATIVE, 0) \
    X(io_uring_submit_and_wait, URING, NEGATIVE, 0) \
    X(io_uring_register_buffers, URING, NEGATIVE, 0) \
    X(__io_uring_get_cqe, URING, NEGATIVE, 0) \
    X(MPI_Init_thread, MPI, ABORT, 0) X(MPI_Allgather, MPI, ABORT, 0) \
    X(MPI_Barrier, MPI, ABORT, 0) X(MPI_Comm_rank, MPI, ABORT, 0) \
    X(MPI_Comm_size, MPI, ABORT, 0) X(MPI_Finalize, MPI, ABORT, 0) \
    X(MPI_Get_processor_name, MPI, ABORT, 0) X(MPI_Iallgather, MPI, ABORT, 0) \
    X(MPI_Improbe, MPI, ABORT, 0) X(MPI_Iprobe, MPI, ABORT, 0) X(MPI_Irecv, MPI, ABORT, 0) \
    X(MPI_Isend, MPI, ABORT, 0) X(MPI_Mrecv, MPI, ABORT, 0) \
    X(MPI_Request_get_status, MPI, ABORT, 0) X(MPI_Send, MPI, ABORT, 0) \
    X(MPI_Test, MPI, ABORT, 0) X(MPI_Testall, MPI, ABORT, 0) X(MPI_Abort, MPI, ABORT, 0) \
    X(pthread_create, THREAD, CODE, 0) \
    X(flock, LOCK, MINUS, 0) X(fcntl, LOCK, MINUS, 0) X(fcntl64, LOCK, MINUS, 0) \
    X(lockf, LOCK, MINUS, 0) \
    X(stat, STAT, MINUS, 0) X(stat64, STAT, MINUS, 0) X(lstat, STAT, MINUS, 0) \
    X(fstat, STAT, MINUS, 0) X(fstatat, STAT, MINUS, 0) X(statx, STAT, MINUS, 0) \
    X(access, STAT, MINUS, 0) X(faccessat, STAT, MINUS, 0) X(fchmod, STAT, MINUS, 0) \
    X(chmod, STAT, MINUS, 0) X(fchown, STAT, MINUS, 0) \
    X(statfs, STATVFS, MINUS, 0) X(fstatfs, STATVFS, MINUS, 0) X(statvfs, STATVFS, MINUS, 0) \
    X(fstatvfs, STATVFS, MINUS, 0) \
    X(opendir, DIR, ZERO, 0) X(fdopendir, DIR, ZERO, 0) X(readdir, DIR, ZERO, 0) \
    X(dirfd, DIR, MINUS, 0) X(fts_open, DIR, ZERO, 0) X(fts_read, DIR, ZERO, 0) \
    X(closedir, DIR, MINUS, 0) X(glob, DIR, CODE, 0) \
    X(ftruncate, TRUNCATE, MINUS, 0) X(truncate, TRUNCATE, MINUS, 0) \
    X(lseek, SEEK, MINUS, 0) X(lseek64, SEEK, MINUS, 0) X(fseek, SEEK, MINUS, 0) \
    X(close, CLOSE, MINUS, 0) X(fclose, CLOSE, MINUS, 0) \
    X(pipe, FD, MINUS, 0) X(pipe2, FD, MINUS, 0) X(dup, FD, MINUS, 0) X(dup2, FD, MINUS, 0) \
    X(dup3, FD, MINUS, 0) X(eventfd, FD, MINUS, 0) X(poll, FD, MINUS, 0) X(ppoll, FD, MINUS, 0) \
    X(gethostname, FD, MINUS, 0) X(ioctl, FD, MINUS, 0)

#define FAULT_CLASSES(X) \
    X(OPEN, "open") X(READ, "read") X(WRITE, "write") X(FSYNC, "fsync") X(RENAME, "rename") \
    X(UNLINK, "unlink") X(MKDIR, "mkdir") X(MMAP, "mmap") X(MALLOC, "malloc") \
    X(URING, "io_uring") X(MPI, "mpi") X(THREAD, "thread") X(LOCK, "lock") X(STAT, "stat") \
    X(STATVFS, "statvfs") X(DIR, "dir") X(TRUNCATE, "truncate") X(SEEK, "seek") \
    X(CLOSE, "close") X(FD, "fd") X(CUDA, "cuda")
// clang-format on

#define FAULT_AS_CLASS(name, text) CLASS_##name,
enum Class { FAULT_CLASSES(FAULT_AS_CLASS) NCLASS };

#define FAULT_AS_CALL(name, class, fails, stream) CALL_##name,
// Last those that fault.c makes by hand; completion: of io_uring, which is no call.
enum CallId {
    FAULT_CALLS(FAULT_AS_CALL) CALL_completion,
    CALL_printf,
    CALL_fprintf,
    CALL_fscanf,
    NCALL
};

// The arguments of any call: pointers and integers, of which no call has more.
enum { NARG = 12 };

// ---- fault_settings.c ----

enum Do { DO_FAIL, DO_TEAR, DO_TORN, DO_DELAY, DO_SKIP, DO_KILL, DO_KILL_TORN, DO_KILL_AFTER };

struct FaultSettings {
    bool counts, records;
    struct OwnCode own;
    unsigned classes;
    long at, most;
    enum Do what;
    int error;
    long delay_ms, hurry;
    const char *text, *log;
};
extern struct FaultSettings fault_set;
extern const char *const fault_class_name[NCLASS];

// ---- fault_record.c ----

// FAULT_RECORD=FILE: what the program does to the files below the folder FAULT_BELOW is written
// there, with its data, in the order in which it happened: see fault_record.c.
void fault_record_open(void);
// Between these two, one thread at a time.
void fault_record_before(enum CallId id, const long arg[NARG]);
void fault_record_after(enum CallId id, const long arg[NARG], long result);

#endif
