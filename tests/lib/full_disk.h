// A disk that is full on purpose. These stand in front of the C library's: call number
// disk_fail_at, counted over all of them, says so. For one source of a program.
#ifndef TESTS_LIB_FULL_DISK_H
#define TESTS_LIB_FULL_DISK_H
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static int disk_calls, disk_fail_at;

static bool disk_fails(void) {
    if (++disk_calls != disk_fail_at)
        return false;
    errno = ENOSPC;
    return true;
}

ssize_t write(int fd, const void *bytes, size_t n) {
    return disk_fails() ? -1 : syscall(SYS_write, fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) {
    return disk_fails() ? -1 : syscall(SYS_pwrite64, fd, bytes, n, at);
}

// A disk may have none: then it says nothing of room.
static bool no_fallocate;

int fallocate(int fd, int mode, off_t from, off_t n) {
    if (no_fallocate)
        return errno = EOPNOTSUPP, -1;
    return disk_fails() ? -1 : (int)syscall(SYS_fallocate, fd, mode, from, n);
}

int fsync(int fd) {
    return disk_fails() ? -1 : (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to) {
    return disk_fails() ? -1 : (int)syscall(SYS_rename, from, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return disk_fails() ? -1 : (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

#endif
