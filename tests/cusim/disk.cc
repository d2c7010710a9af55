// The files of the NVMe tier (zero/offload/nvme.h), as the race detector sees them.
//
// io_uring reads and writes memory behind the program's back, so no compiled access tells of it;
// and what was written to a file and is read back has to be ordered like what lies in memory. Each
// file therefore has a shadow, a range of pinned memory as long as the file, which holds nothing: a
// write to the disk counts as reading the memory and writing the shadow, a read the other way
// round. The calling thread does it, as it returns only when the disk is done.
//
// The lock by which a reader and a writer keep off the same 4 KiB carries no clock: it keeps units
// of the disk whole and puts nothing in order.
#include "tests/cusim/internal.h"

#include "zero/offload/nvme.h"

#include <array>
#include <map>

extern "C" {
int __real_nvme_open(Nvme **out, const NvmeSettings *, int rank, const uint64_t bytes[NTAG],
                     Error *);
void __real_nvme_close(Nvme *);
int __real_nvme_read(Nvme *, const NvmePiece *, int count, Error *);
int __real_nvme_write(Nvme *, const NvmePiece *, int count, Error *);
}

namespace cusim {

static std::map<const Nvme *, std::array<char *, NTAG>> shadows;

// The memory and the shadow of every piece. The disk may fill up a file's last unit: what was never
// written there may be read.
static void note(const Nvme *n, const NvmePiece *pieces, int count, bool write) {
    for (int i = 0; i < count; i++) {
        const NvmePiece &p = pieces[i];
        access(p.mem, p.bytes, write ? Use::READ : Use::WRITE);
        access(shadows.at(n)[p.file] + p.offset, p.bytes, write ? Use::WRITE : Use::CARRY);
    }
}

} // namespace cusim

using namespace cusim;

extern "C" {
int __wrap_nvme_open(Nvme **out, const NvmeSettings *settings, int rank, const uint64_t bytes[NTAG],
                     Error *e) {
    int err = __real_nvme_open(out, settings, rank, bytes, e);
    if (err)
        return err;
    for (int tag = 0; tag < NTAG; tag++)
        shadows[*out][tag] = static_cast<char *>(
            bytes[tag] ? memory_alloc(-1, round_up(bytes[tag], 4096)) : nullptr);
    return 0;
}

void __wrap_nvme_close(Nvme *n) {
    if (!n)
        return;
    for (char *shadow : shadows.at(n))
        if (shadow)
            memory_free(shadow, true);
    shadows.erase(n);
    __real_nvme_close(n);
}

int __wrap_nvme_read(Nvme *n, const NvmePiece *pieces, int count, Error *e) {
    Quiet quiet;
    note(n, pieces, count, false);
    return __real_nvme_read(n, pieces, count, e);
}

int __wrap_nvme_write(Nvme *n, const NvmePiece *pieces, int count, Error *e) {
    Quiet quiet;
    note(n, pieces, count, true);
    return __real_nvme_write(n, pieces, count, e);
}
}
