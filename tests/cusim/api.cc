// The part of CUDA's runtime that the project uses, besides streams and events (stream.cc).
//
// The prototypes are the toolkit's own. What is not here does not link: a new call of CUDA's needs
// a line here first.
//
// A program that is no test of ours (./train) is told of its machine by its environment: it has
// CUSIM_GPUS of them (1), of which CUDA_VISIBLE_DEVICES shows some, as CUDA's driver does.
#include "tests/cusim/internal.h"

#include <stdlib.h>
#include <string.h>

using namespace cusim;

static cudaError_t last_error = cudaSuccess;
static size_t launches; // since the last call of sim_launches

void cusim::count_launch(const char *what) {
    for (const char *launch : {"a kernel", "cublasLtMatmul", "a copy", "a memset"})
        launches += !strcmp(what, launch);
}

static int capability_major = 9, capability_minor = 0;

// Kernels count as built for 8.0 and 9.0. Machine code runs on GPUs of its own major number, from
// its minor number on.
static bool has_code() {
    return capability_major == 8 || capability_major == 9;
}

static cudaError_t result(cudaError_t e) {
    if (e != cudaSuccess)
        last_error = e;
    return e;
}

// ---- which GPUs ----

static int place[MAX_GPUS]; // in the machine, of each GPU that is shown

// CUDA shows those that are listed, up to the first that there is not.
static void show_gpus(int count, const char *listed) {
    if (count < 0 || count > MAX_GPUS)
        die("%d GPUs, the simulator has at most %d", count, MAX_GPUS);
    for (int i = 0; i < count; i++)
        place[i] = i;
    gpu_count = listed ? 0 : count;
    while (listed && gpu_count < count) {
        char *end;
        long n = strtol(listed, &end, 10);
        if (end == listed || n < 0 || n >= count)
            break;
        place[gpu_count++] = (int)n;
        listed = *end == ',' ? end + 1 : end;
    }
}

int cusim::gpu_place(int gpu) {
    return place[gpu];
}

// Before main, so that a test can still say otherwise.
__attribute__((constructor)) static void find_gpus() {
    const char *machine = getenv("CUSIM_GPUS");
    show_gpus(machine ? atoi(machine) : 1, getenv("CUDA_VISIBLE_DEVICES"));
}

// CUDA looks at its environment when it starts.
static std::string *module_loading;

static void start() {
    const char *now = getenv("CUDA_MODULE_LOADING");
    if (!module_loading)
        module_loading = new std::string(now ? now : "");
}

extern "C" {
const char *sim_module_loading(void) {
    return module_loading ? module_loading->c_str() : nullptr;
}

bool sim_is_real(void) {
    return false;
}

void sim_set_gpus(int count) {
    show_gpus(count, nullptr);
}

void sim_set_capability(int major, int minor) {
    capability_major = major;
    capability_minor = minor;
}

// ---- GPUs ----

cudaError_t cudaGetDeviceCount(int *count) {
    start();
    *count = gpu_count;
    return gpu_count ? cudaSuccess : result(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int gpu) {
    start();
    host_turn();
    if (gpu < 0 || gpu >= gpu_count)
        return result(cudaErrorInvalidDevice);
    host_self()->gpu = gpu;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *gpu) {
    start();
    *gpu = current_gpu();
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu) {
    if (gpu < 0 || gpu >= gpu_count)
        return result(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
        *value = capability_major;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        *value = capability_minor;
        break;
    case cudaDevAttrMultiProcessorCount:
        *value = 4; // few, so that grids that follow it have several blocks and tests stay short
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = 227 << 10;
        break;
    default:
        die("cudaDeviceGetAttribute %d is not simulated", (int)attribute);
    }
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int gpu) {
    start();
    if (gpu < 0 || gpu >= gpu_count)
        return result(cudaErrorInvalidDevice);
    memset(out, 0, sizeof *out);
    strcpy(out->name, "simulated GPU");
    out->totalGlobalMem = gpu_bytes;
    out->major = capability_major;
    out->minor = capability_minor;
    out->multiProcessorCount = 4;
    out->uuid.bytes[0] = (char)(1 + place[gpu]);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *lowest, int *highest) {
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
    start();
    *free_bytes = memory_free_bytes(current_gpu());
    *all_bytes = gpu_bytes;
    return cudaSuccess;
}

// ---- errors ----

cudaError_t cudaGetLastError(void) {
    cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}
cudaError_t cudaPeekAtLastError(void) {
    return last_error ? last_error : lost;
}
const char *cudaGetErrorString(cudaError_t e) {
    switch (e) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorECCUncorrectable:
        return "uncorrectable ECC error encountered";
    case cudaErrorNotReady:
        return "device not ready";
    default:
        return "an error of the simulator";
    }
}
const char *cudaGetErrorName(cudaError_t e) {
    switch (e) {
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorDevicesUnavailable:
        return "cudaErrorDevicesUnavailable";
    case cudaErrorECCUncorrectable:
        return "cudaErrorECCUncorrectable";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    default:
        return "cudaErrorUnknown";
    }
}

// ---- memory ----

static cudaError_t allocate(void **out, int gpu, size_t bytes) {
    start();
    host_turn();
    if (gpu >= gpu_count)
        return result(cudaErrorNoDevice);
    *out = memory_alloc(gpu, bytes);
    return *out ? cudaSuccess : result(cudaErrorMemoryAllocation);
}
cudaError_t cudaMalloc(void **out, size_t bytes) {
    return allocate(out, current_gpu(), bytes);
}
cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return allocate(out, -1, bytes);
}
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return allocate(out, -1, bytes);
}
cudaError_t cudaFree(void *p) {
    host_turn();
    if (p)
        memory_free(p, false);
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *p) {
    host_turn();
    if (p)
        memory_free(p, true);
    return cudaSuccess;
}

static void check_kind(const void *to, const void *from, enum cudaMemcpyKind kind) {
    bool to_gpu = is_device_memory(to), from_gpu = is_device_memory(from);
    enum cudaMemcpyKind is = to_gpu ? from_gpu ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice
                             : from_gpu ? cudaMemcpyDeviceToHost
                                        : cudaMemcpyHostToHost;
    if (kind != cudaMemcpyDefault && kind != is)
        die("a copy of kind %d whose pointers are of kind %d", (int)kind, (int)is);
}

// Other host memory than pinned is read at once (the driver stages it), and written before the call
// returns. What was never written may be copied there too: tests look at all of their operands.
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    host_turn();
    check_kind(to, from, kind);
    bool plain_to = !is_device_memory(to) && !is_pinned_memory(to);
    bool plain_from = !is_device_memory(from) && !is_pinned_memory(from);
    std::shared_ptr<std::vector<char>> staged;
    if (plain_from) {
        staged = std::make_shared<std::vector<char>>(bytes);
        raw_copy(staged->data(), from, bytes);
    }
    enqueue(stream, "a copy", [=] {
        access(from, bytes, Use::CARRY);
        access(to, bytes, Use::WRITE);
        raw_copy(to, staged ? staged->data() : from, bytes);
    });
    if (plain_to)
        stream_finish(stream);
    return lost;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream) {
    host_turn();
    enqueue(stream, "a memset", [=] {
        access(p, bytes, Use::WRITE);
        raw_set(p, value, bytes);
    });
    return lost;
}

// ---- functions of the host, and kernels ----

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t function, void *data) {
    host_turn();
    call_on_driver(s, function, data);
    return lost;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize)
        set_dynamic_limit(kernel, (size_t)value);
    else if (attribute != cudaFuncAttributePreferredSharedMemoryCarveout)
        die("cudaFuncSetAttribute %d is not simulated", (int)attribute);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel) {
    (void)kernel;
    if (!has_code())
        return result(cudaErrorNoKernelImageForDevice);
    memset(out, 0, sizeof *out);
    out->binaryVersion = 10 * capability_major;
    return cudaSuccess;
}

size_t sim_launches(void) {
    size_t count = launches;
    launches = 0;
    return count;
}
}
