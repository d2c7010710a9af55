// Where a rank computes: the CPU, or which GPU, and what memory is there.
#ifndef ZERO_RANK_RANK_DEVICE_H
#define ZERO_RANK_RANK_DEVICE_H
#include "kernels/kernels.h"
#include "zero/settings/settings.h"

enum CommKind {
    COMM_KIND_SELF,   // one rank
    COMM_KIND_THREAD, // threads that see each other's memory
    COMM_KIND_MPI,    // processes, over MPI
    COMM_KIND_NCCL,   // a GPU for each rank
};

// What the choice depends on.
struct GpuAssignment {
    bool cuda;      // the ranks compute on GPUs
    bool processes; // they are processes of a job; else threads of this process
    int ranks;      // of the job
    int node_rank;  // this rank among those of its machine
    int node_ranks;
    int gpus;  // that this process sees. 0: a plan, for machines with one for each rank
    bool nccl; // NCCL is installed
};

struct CommChoice {
    enum CommKind kind;
    int gpu; // that this rank computes on
};

// A GPU for each rank of a machine: rank r of it has GPU r, and NCCL moves the data. One GPU for
// all: threads read each other's buffers, processes go through the host's memory and MPI. Anything
// in between is refused: -EINVAL. Threads that have GPUs enough but no NCCL: -ENOTSUP.
int comm_choose(const struct GpuAssignment *seats, struct CommChoice *out, struct Error *e);

// Processes must choose alike, and a launcher may show each of them one GPU, the same or another.
// So they tell each other what they have: gpu[r] is the identity of rank r's GPU, or 0 where that
// rank cannot use NCCL. True: they all can.
bool comm_gpus_apart(const uint64_t gpu[], int ranks);

// The choice of a rank with these settings. dry: a plan, for machines with a GPU a rank, but where
// this one has just one. The first time, before ranks have threads: it may change the environment.
// Errors: those of comm_choose.
int rank_device_choose(const struct RankSettings *s, bool dry, struct CommChoice *out,
                       struct Error *e);

// What a line leaves to the world and the machine: s->ranks, and use's cores (of `cores` on this
// machine) and chosen; a plan with --device-mem is for a GPU. Processes agree: what is chosen all
// of them have. All of them call it together, after they agreed on the line. Errors: -EINVAL, those
// of world_set_ranks.
int rank_device_join(struct RankSettings *s, struct World *w, size_t cores, struct SettingsUse *use,
                     struct Error *e);

// Opens the device of rank s->rank: on a GPU, the one that comm_choose gives it. dry: a device that
// can only be asked for sizes; it needs no GPU. Errors: those of device.h and of comm_choose.
int rank_device_open(struct Device **out, const struct RankSettings *s, bool dry, struct Error *e);

// 0 if the device that the settings ask for is there. Errors: those of device.h.
int rank_device_check(const struct RankSettings *s, struct Error *e);

// Memory of the place where the ranks of this process keep their tiers, in bytes.
struct RankDeviceMemory {
    size_t free_bytes;    // for all of them together
    size_t process_bytes; // in use before they are opened
};
// host: the same of the CPU's memory, for all `processes` of the machine; that is what it is unless
// the device has its own. Where there is no GPU all is free: a plan does not need the one that it
// is for, and a run was refused before. Processes that share a GPU look like those that see their
// own alone: each is told all of it, and the tiers refuse what does not fit. Errors: device.h's.
int rank_device_memory(const struct RankSettings *s, struct RankDeviceMemory host, int processes,
                       struct RankDeviceMemory *out, struct Error *e);

// The most that was in use there, so far. host_bytes: of the CPU's memory.
size_t rank_device_peak_bytes(const struct RankSettings *s, size_t host_bytes);

// matmul_speed_of_light (kernels/speed.h) of a device that is opened for it alone; 0 where that
// fails, which rank_device_check would have said. settings: a struct RankSettings *.
double rank_device_measure_speed(void *settings);
// The name under which that speed is kept: all that it depends on. free() it.
char *rank_device_speed_name(const struct RankSettings *s);

// copy_speed of such a device in each direction, likewise.
double rank_device_measure_in(void *settings);
double rank_device_measure_out(void *settings);
char *rank_device_copy_name(const struct RankSettings *s, const char *direction);

// The update of `n` elements of such settings, without its memory: what cost_adamw counts.
struct AdamW rank_device_update(const struct RankSettings *s, size_t n);
// update_speed of such a device, or of the host's; settings: a struct UpdateBenchmark *.
struct UpdateBenchmark {
    const struct RankSettings *settings;
    size_t n; // elements of an update, or so many as show its speed
    bool host;
};
struct UpdateBenchmark rank_device_update_of(const struct RankSettings *s, size_t n, bool host);
double rank_device_measure_update(void *update);
char *rank_device_update_name(const struct UpdateBenchmark *update); // free() it

#endif
