// A disk for tests of the NVMe tier that does what real ones do on bad days: it moves less than it
// was asked to, fails, is slow. It stands between nvme_move.c and the kernel's io_uring, so files,
// alignment and bytes are real.
#ifndef TESTS_LIB_DISK_FAULTS_H
#define TESTS_LIB_DISK_FAULTS_H
#include "zero/offload/nvme_disk.h"

#include <stdatomic.h>

enum { FAULT_NEVER = -1 };

// What it does; disk_faults_init first, then set what is wanted. A request's fate depends on its
// number alone, counted over both directions.
struct DiskFaults {
    struct NvmeDisk disk; // for NvmeSettings
    // This share of the requests ends after `short_bytes`. What a real disk does not do, to end
    // within a unit, is played: whole units are moved, and the rest of what was read is garbage.
    double short_share;
    size_t short_bytes;
    // This share ends with -error and moves nothing; or the request of this number does. With an
    // error of 0 the disk says that it moved 0 bytes.
    double error_share;
    int64_t error_at;
    int error;
    bool error_in_writes_only;
    double bytes_per_second; // of all requests together; 0: as fast as it is
    bool refuse_pin;
    // From the wait of this number on, counted over both directions, the queues themselves have
    // failed, with -error.
    int64_t break_at;

    // What it saw.
    atomic_llong requests, with_buffer, pins, waits;
    atomic_int under_way, most_under_way;
    _Atomic double free_at; // when the slow disk has done all that it was given
};

void disk_faults_init(struct DiskFaults *f);

#endif
