// Chooses where a rank computes, the CPU or which GPU, and finds what memory is there.
#ifndef ZERO_RANK_RANK_DEVICE_H
#define ZERO_RANK_RANK_DEVICE_H
#include "kernels/kernels.h"
#include "zero/settings/settings.h"

enum RankDeviceComm {
    RANK_DEVICE_SELF,   // one rank
    RANK_DEVICE_THREAD, // threads that see each other's memory
    RANK_DEVICE_MPI,    // processes, over MPI
    RANK_DEVICE_NCCL,   // a GPU for each rank
};

// The facts that rank_device_assign depends on.
struct GpuAssignment {
    bool cuda;      // the ranks compute on GPUs
    bool processes; // they are processes of a job; else threads of this process
    int ranks;      // of the job
    int node_rank;  // this rank among those of its machine
    int node_ranks;
    int gpus;  // visible to this process. 0: a plan, for machines with one for each rank
    bool nccl; // NCCL is installed
};

struct RankDeviceChoice {
    enum RankDeviceComm kind;
    int gpu; // the one that this rank computes on
};

// With a GPU for each rank of a machine, its rank r has GPU r, and NCCL moves the data. With one
// GPU for all, threads read each other's buffers, and processes use MPI through host memory.
// Anything in between is refused: -EINVAL. Threads with enough GPUs but no NCCL: -ENOTSUP.
int rank_device_assign(const struct GpuAssignment *assignment, struct RankDeviceChoice *out,
                       struct Error *e);

// True if all ranks can use NCCL. Processes must choose alike, and a launcher may show each of them
// one GPU, the same or another; so they exchange what they have: gpu[r] is the identity of rank r's
// GPU, or 0 if that rank cannot use NCCL.
bool rank_device_gpus_apart(const uint64_t gpu[], int ranks);

// Makes the choice of a rank with these settings. dry: a plan, for machines with a GPU per rank,
// unless this one has just one. Call it first before ranks have threads: it may change the
// environment. Errors: those of rank_device_assign.
int rank_device_choose(const struct RankSettings *s, bool dry, struct RankDeviceChoice *out,
                       struct Error *e);

// Fills in settings that depend on the world and the machine: s->ranks, and use's cores (of `cores`
// on this machine) and chosen; a plan with --device-mem is for a GPU. All processes call it
// together, after they agreed on the command line, and agree: what is chosen all of them have.
// Errors: -EINVAL, those of world_set_ranks.
int rank_device_join(struct RankSettings *s, struct World *w, size_t cores, struct SettingsUse *use,
                     struct Error *e);

// Opens the device of rank s->rank: on a GPU, the one that rank_device_assign gives it. dry: a
// device that only answers about sizes; it needs no GPU. Errors: those of device.h and
// rank_device_assign.
int rank_device_open(struct Device **out, const struct RankSettings *s, bool dry, struct Error *e);

// Returns 0 if the device that the settings ask for is there. Errors: those of device.h.
int rank_device_check(const struct RankSettings *s, struct Error *e);

// The memory in which the ranks of this process keep their tiers, in bytes.
struct RankDeviceMemory {
    size_t free_bytes;    // for all of them together
    size_t process_bytes; // in use before they are opened
};
// host: the same for the CPU's memory, of all `processes` of the machine; it is returned unless the
// device has its own. If there is no GPU all is free: a plan does not need its GPU, and a run was
// refused before. Processes that share a GPU look like those that see only their own: each gets all
// of it, and the tiers refuse what does not fit. Errors: device.h's.
int rank_device_memory(const struct RankSettings *s, struct RankDeviceMemory host, int processes,
                       struct RankDeviceMemory *out, struct Error *e);

// Returns the most memory in use there so far: host_bytes, the CPU's; of a GPU, what is in use now.
size_t rank_device_peak_bytes(const struct RankSettings *s, size_t host_bytes);

// Runs matmul_speed_of_light (kernels/speed.h) on a device that is opened for it alone; 0 if that
// fails, which rank_device_check would have reported. settings: a struct RankSettings *.
double rank_device_measure_speed(void *settings);
// Returns the name under which that speed is cached: all that it depends on. free() it.
char *rank_device_speed_name(const struct RankSettings *s);

// Run copy_speed on such a device in each direction, likewise.
double rank_device_measure_in(void *settings);
double rank_device_measure_out(void *settings);
char *rank_device_copy_name(const struct RankSettings *s, const char *direction);

// Describes the update of `n` elements of such settings, without memory: what cost_adamw counts.
struct AdamW rank_device_update(const struct RankSettings *s, size_t n);
// Measures update_speed of such a device, or of the host; update: a struct UpdateBenchmark *.
struct UpdateBenchmark {
    const struct RankSettings *settings;
    size_t n; // elements of an update, or enough to show its speed
    bool host;
};
struct UpdateBenchmark rank_device_update_of(const struct RankSettings *s, size_t n, bool host);
double rank_device_measure_update(void *update);
char *rank_device_update_name(const struct UpdateBenchmark *update); // free() it

#endif
