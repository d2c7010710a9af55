// A GPU as a device: memory, four streams, events.
//
// Queues are CUDA streams made with cudaStreamNonBlocking: nothing here, and no launcher of a
// kernel, uses the NULL stream, so only events order two queues. The comm queue has the highest
// priority: a collective that waits after a long kernel would keep other ranks waiting. The host's
// end of a copy is pinned memory (alloc_host); the driver would stage a copy from other memory, and
// block the caller.
//
// An error inside CUDA ends the run: after a failed kernel the context holds no data that could be
// saved.
//
// Read next: table.c, then the kernels, from gelu.cu on.
#include "kernels/cuda/cuda.h"

#include "kernels/cuda/blas.h"
#include "kernels/cuda/spans.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct Event {
    cudaEvent_t event;
};

static void *gpu_alloc(struct Device *d, size_t bytes) {
    (void)d;
    void *mem = NULL;
    cudaError_t status = cudaMalloc(&mem, size_max(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError(); // it is reported to the caller, and cleared here
        return NULL;
    }
    CUDA_CHECK_STATUS(status, "cudaMalloc");
    return mem;
}

static void gpu_free(struct Device *d, void *mem, size_t bytes) {
    (void)d;
    (void)bytes;
    CUDA_CHECK(cudaFree(mem));
}

static void *gpu_alloc_host(struct Device *d, size_t bytes) {
    (void)d;
    void *mem = NULL;
    cudaError_t status = cudaMallocHost(&mem, size_max(bytes, 1));
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        return NULL;
    }
    CUDA_CHECK_STATUS(status, "cudaMallocHost");
    return mem; // not filled: 25 GB would take 5 s
}

static void gpu_free_host(struct Device *d, void *mem) {
    (void)d;
    CUDA_CHECK(cudaFreeHost(mem));
}

static void gpu_copy(struct Stream *s, void *dst, const void *src, size_t bytes) {
    CHECK(src, "copy of %zu bytes from nowhere", bytes);
    struct CopyOperands copy = {dst, src, bytes};
    span_begin(s, "copy", &copy);
    span_part(s, "copy", (struct Cost){.bytes = (double)bytes});
    s->launches++;
    CUDA_CHECK(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, s->stream));
    span_end(s);
}

static void gpu_zero(struct Stream *s, void *dst, size_t bytes) {
    struct CopyOperands zero = {dst, NULL, bytes};
    span_begin(s, "zero", &zero);
    span_part(s, "zero", (struct Cost){.bytes = (double)bytes});
    s->launches++;
    CUDA_CHECK(cudaMemsetAsync(dst, 0, bytes, s->stream));
    span_end(s);
}

struct CudaHostCall {
    DeviceCall *call;
    _Alignas(16) unsigned char args[DEVICE_CALL_BYTES];
};

static void run_host_call(void *host_call) {
    struct CudaHostCall *c = host_call;
    c->call(c->args);
    free(c);
}

static void gpu_call(struct Stream *s, DeviceCall *call, const void *args, size_t bytes) {
    CHECK(bytes <= DEVICE_CALL_BYTES, "%zu bytes of arguments", bytes);
    struct CudaHostCall *c = base_alloc_zeroed(sizeof *c);
    c->call = call;
    if (bytes)
        memcpy(c->args, args, bytes);
    span_begin(s, "call", NULL);
    CUDA_CHECK(cudaLaunchHostFunc(s->stream, run_host_call, c));
    span_end(s);
}

// CUDA's current GPU belongs to a thread, and is 0 at first.
static void gpu_enter(struct Device *d) {
    CUDA_CHECK(cudaSetDevice(((struct Cuda *)d)->index));
}

// A thread that waits for an event sleeps: the cores have offloaded state to update.
static struct Event *gpu_event_open(struct Device *d) {
    (void)d;
    struct Event *e = base_alloc_zeroed(sizeof *e);
    unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    CUDA_CHECK(cudaEventCreateWithFlags(&e->event, flags));
    return e;
}

static void gpu_event_close(struct Event *e) {
    if (!e)
        return;
    CUDA_CHECK(cudaEventDestroy(e->event));
    free(e);
}

static void gpu_record(struct Stream *s, struct Event *e) {
    span_begin(s, "record", NULL);
    CUDA_CHECK(cudaEventRecord(e->event, s->stream));
    span_end(s);
}

// Its span shows in a trace how long the stream had nothing else to do.
static void gpu_wait(struct Stream *s, struct Event *e) {
    span_begin(s, "wait", NULL);
    CUDA_CHECK(cudaStreamWaitEvent(s->stream, e->event, 0));
    span_end(s);
}

static void gpu_span_begin(struct Stream *s, const char *name) {
    span_begin(s, name, NULL);
}

static bool gpu_event_done(struct Event *e) {
    cudaError_t status = cudaEventQuery(e->event);
    if (status == cudaErrorNotReady) {
        cudaGetLastError(); // CUDA records it like an error
        return false;
    }
    CUDA_CHECK_STATUS(status, "cudaEventQuery");
    return true;
}

static void gpu_sync_event(struct Event *e) {
    CUDA_CHECK(cudaEventSynchronize(e->event));
}

static void gpu_sync_stream(struct Stream *s) {
    CUDA_CHECK(cudaStreamSynchronize(s->stream));
}

static void *gpu_native_stream(struct Stream *s) {
    return s->stream;
}

static void gpu_close(struct Device *d) {
    struct Cuda *cuda = (struct Cuda *)d;
    for (int q = 0; q < NQUEUE; q++)
        CUDA_CHECK(cudaStreamSynchronize(cuda->streams[q]->stream));
    blas_close(cuda->blas);
    for (int q = 0; q < NQUEUE; q++) {
        CUDA_CHECK(cudaStreamDestroy(cuda->streams[q]->stream));
        CUDA_CHECK(cudaFree(cuda->streams[q]->sums));
        spans_close(cuda->streams[q]->spans);
        free(cuda->streams[q]);
    }
    spans_close_clock(cuda);
    free(cuda);
}

static const struct DeviceOps gpu_ops = {
    .alloc = gpu_alloc,
    .free = gpu_free,
    .alloc_host = gpu_alloc_host,
    .free_host = gpu_free_host,
    .copy = gpu_copy,
    .zero = gpu_zero,
    .call = gpu_call,
    .enter = gpu_enter,
    .event_open = gpu_event_open,
    .event_close = gpu_event_close,
    .record = gpu_record,
    .wait = gpu_wait,
    .event_done = gpu_event_done,
    .sync_event = gpu_sync_event,
    .sync_stream = gpu_sync_stream,
    .native_stream = gpu_native_stream,
    .span_begin = gpu_span_begin,
    .span_end = span_end,
    .collect = spans_collect,
    .close = gpu_close,
};

// ---- opening ----

// By default CUDA loads a kernel at its first launch, and that may wait until the GPU is idle,
// while other threads' calls wait for this one. If a kernel on that GPU, such as NCCL's, waits for
// another rank, and that rank waits to launch, this is a deadlock. Source: NVIDIA, "CUDA C++
// Programming Guide", section on lazy loading ("Concurrent execution").
//
// But lazy loading starts sooner and takes less memory; and one rank, or ranks that share a GPU,
// cannot deadlock so, since all their queued work always finishes:
//   - No kernel waits for later work of another kernel or a host. There is no NCCL between such
//     ranks (zero/rank/rank_device.h), and our kernels and cuBLASLt's wait only for blocks of their
//     own grid.
//   - A queue waits only for events that are recorded already: threads meet on their hosts, after
//     recording their own events, before they queue their waits (comm/thread.c). No queue waits for
//     the CPU; the thread that queues does (mark.h).
//   - The only host functions in these queues are exchanges of processes over MPI. Each waits for
//     another process's, which may be what loads a kernel, and so waits for earlier work in its
//     queue. At worst each process does one thing after the other, as with --overlap off, with
//     everything in one queue: that finishes, since all have their exchanges in one order.
//   - A thread that launches holds no lock that queued work needs.
// tests/zero/test_gpu_grids.c and test_mpi_gpu.sh make every launch wait like this.
void device_load_eagerly_cuda(void) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
}

int device_count_cuda(void) {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) {
        cudaGetLastError(); // no driver: no GPU
        return 0;
    }
    return count;
}

struct DeviceMemory device_memory_cuda(int index) {
    size_t free_bytes, all;
    CUDA_CHECK(cudaSetDevice(index));
    CUDA_CHECK(cudaMemGetInfo(&free_bytes, &all));
    return (struct DeviceMemory){free_bytes, all - free_bytes};
}

uint64_t device_identity_cuda(int index) {
    struct cudaDeviceProp properties;
    uint64_t half[2];
    _Static_assert(sizeof half == sizeof properties.uuid, "128 bits");
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    memcpy(half, &properties.uuid, sizeof half);
    return rng_mix(rng_mix(half[0]) ^ half[1]) | 1;
}

char *device_name_cuda(int index) {
    struct cudaDeviceProp properties;
    CUDA_CHECK(cudaGetDeviceProperties(&properties, index));
    return base_format("%s", properties.name);
}

static struct Stream *stream_open(struct Cuda *cuda, enum Queue q) {
    struct Stream *s = base_alloc_zeroed(sizeof *s);
    int lowest, highest;
    CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
    *s = (struct Stream){.cuda = cuda, .number = q};
    CUDA_CHECK(cudaStreamCreateWithPriority(&s->stream, cudaStreamNonBlocking,
                                            q == QUEUE_COMM ? highest : lowest));
    CUDA_CHECK(cudaMalloc((void **)&s->sums, STREAM_SUMS * sizeof *s->sums));
    return s;
}

struct Capability {
    int major, minor;
};

static struct Capability capability_of(int index) {
    struct Capability c;
    CUDA_CHECK(cudaDeviceGetAttribute(&c.major, cudaDevAttrComputeCapabilityMajor, index));
    CUDA_CHECK(cudaDeviceGetAttribute(&c.minor, cudaDevAttrComputeCapabilityMinor, index));
    return c;
}

// Checks for the oldest supported GPUs: the first with bf16 on their tensor cores.
static int check_gpu(int index, struct Error *e) {
    int count = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || index >= count) {
        const char *why = status == cudaSuccess ? "no such GPU" : cudaGetErrorString(status);
        cudaGetLastError();
        return error_set(
            e, -ENODEV, E_GPU_MISSING,
            "--device cuda: GPU %d of %d cannot be used (CUDA: %s): check by nvidia-smi "
            "that the driver and that GPU are there, or give --device cpu",
            index, count, why);
    }
    struct Capability has = capability_of(index);
    if (has.major < 8)
        return error_set(
            e, -ENODEV, E_GPU_CAPABILITY,
            "--device cuda: GPU %d has compute capability %d.%d, expected 8.0 or newer; choose "
            "another GPU by CUDA_VISIBLE_DEVICES, or give --device cpu",
            index, has.major, has.minor);
    return 0;
}

// The build has machine code only for the targets of the Makefile's CUDA_ARCHS. On another GPU the
// first launch would fail, long after the data was read; so this checks early.
static int check_code(int index, struct Error *e) {
    cudaError_t status = cuda_find_code();
    if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction) {
        CUDA_CHECK_STATUS(status, "cudaFuncGetAttributes");
        return 0;
    }
    cudaGetLastError();
    struct Capability has = capability_of(index);
    return error_set(e, -ENODEV, E_GPU_CAPABILITY,
                     "--device cuda: GPU %d has compute capability %d.%d, and this build has "
                     "kernels for CUDA_ARCHS=\"%s\": build again with make CUDA_ARCHS=%d%d%s",
                     index, has.major, has.minor, CUDA_ARCHS, has.major, has.minor,
                     has.major == 9 && has.minor == 0 ? "a" : "");
}

int device_open_cuda(struct Device **out, int index, struct Error *e) {
    struct Blas *blas = NULL;
    if (index < 0) {
        *out = plan_device_open();
        return 0;
    }
    int err = check_gpu(index, e);
    if (!err) {
        CUDA_CHECK(cudaSetDevice(index));
        err = check_code(index, e);
    }
    if (!err)
        err = blas_open(&blas, e);
    if (err)
        return err;
    struct Cuda *cuda = base_alloc_zeroed(sizeof *cuda);
    cuda->device = (struct Device){.ops = &gpu_ops,
                                   .kernels = &cuda_kernels,
                                   .name = "cuda",
                                   .threads = 1,
                                   .busy_rows = 16384,
                                   .piece_bytes = GPU_PIECE_BYTES,
                                   .piece_rows = GPU_PIECE_ROWS};
    cuda->index = index;
    cuda->blas = blas;
    struct Capability has = capability_of(index);
    variants_open(&cuda->variants, 10 * has.major + has.minor);
    for (int q = 0; q < NQUEUE; q++)
        cuda->device.queue[q] = cuda->streams[q] = stream_open(cuda, (enum Queue)q);
    *out = &cuda->device;
    return 0;
}
