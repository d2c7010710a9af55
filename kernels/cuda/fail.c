// Reports calls that CUDA or cuBLASLt refuses, and ends the process.
//
// The machine refuses: a GPU whose memory is full, that has dropped off the bus, that another
// process holds; or a kernel has failed, and CUDA reports it at whatever call comes next. No caller
// could recover, since after most of these the context holds no data that could be saved. So they
// end the process by base_give_up: one line, with the GPU, the call, CUDA's text and name of the
// error, and advice; status 2, and the checkpoints stay as they are.
//
// There are also errors that no machine causes: an argument that is wrong on every GPU. They are
// mistakes of this program, and end in a failed CHECK, with file and line.
//
// Source of the errors' meaning: NVIDIA, "CUDA Runtime API", enum cudaError. Called by the macros
// CUDA_CHECK (cuda.h) and LT_CHECK (blas_plan.h), and by launch.c.
#include "kernels/cuda/blas_plan.h"

#include <string.h>

// True if only a mistake of this program causes the error.
static bool is_mistake(cudaError_t status) {
    static const cudaError_t mistakes[] = {
        cudaErrorInvalidValue,          cudaErrorInvalidConfiguration,  cudaErrorInvalidPitchValue,
        cudaErrorInvalidSymbol,         cudaErrorInvalidDevicePointer,  cudaErrorInvalidHostPointer,
        cudaErrorInvalidResourceHandle, cudaErrorInvalidMemcpyDirection};
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        if (mistakes[i] == status)
            return true;
    return false;
}

// ---- causes and advice ----

enum Cause { MEMORY, KERNEL, NAMED_KERNEL, BROKEN, TAKEN, DRIVER, CODE, LIBRARY, OTHER, NCAUSE };

#define GO_ON "--resume auto goes on from the newest checkpoint"

static const struct {
    enum ErrorId id;
    const char *advice;
} causes[NCAUSE] = {
    [MEMORY] = {E_GPU_MEMORY, "lower --batch, give --fit auto, or end what else is on that GPU "
                              "(nvidia-smi shows it)"},
    [KERNEL] = {E_GPU_KERNEL,
                "a kernel has failed, there or before: --check-launches names it; " GO_ON},
    [NAMED_KERNEL] = {E_GPU_KERNEL, GO_ON},
    [BROKEN] = {E_GPU_BROKEN, "that GPU or its memory may be failing: see `dmesg | grep -i xid` "
                              "and `nvidia-smi -q -d ECC`, and take another; " GO_ON},
    [TAKEN] = {E_GPU_TAKEN,
               "another process holds that GPU: nvidia-smi shows which, and the compute mode"},
    [DRIVER] = {E_GPU_DRIVER,
                "the driver does not fit this program's CUDA: nvidia-smi shows its version; "
                "install a newer one, or build with an older CUDA Toolkit"},
    [CODE] = {E_GPU_CAPABILITY,
              "this build has no kernels for that GPU: build again with make cuda"},
    [LIBRARY] = {E_CUBLASLT, "install another version of the CUDA Toolkit's cuBLAS"},
    [OTHER] = {E_GPU_CALL, "nvidia-smi and `dmesg | grep -i xid` may tell more; " GO_ON},
};

static enum Cause cause_of(cudaError_t status) {
    static const struct {
        cudaError_t status;
        enum Cause cause;
    } rows[] = {
        {cudaErrorMemoryAllocation, MEMORY},
        {cudaErrorIllegalAddress, KERNEL},
        {cudaErrorMisalignedAddress, KERNEL},
        {cudaErrorInvalidAddressSpace, KERNEL},
        {cudaErrorInvalidPc, KERNEL},
        {cudaErrorIllegalInstruction, KERNEL},
        {cudaErrorAssert, KERNEL},
        {cudaErrorLaunchFailure, KERNEL},
        {cudaErrorLaunchTimeout, KERNEL},
        {cudaErrorLaunchOutOfResources, KERNEL},
        {cudaErrorHardwareStackError, BROKEN},
        {cudaErrorECCUncorrectable, BROKEN},
        {cudaErrorNvlinkUncorrectable, BROKEN},
        {cudaErrorDevicesUnavailable, TAKEN},
        {cudaErrorDeviceAlreadyInUse, TAKEN},
        {cudaErrorInsufficientDriver, DRIVER},
        {cudaErrorSystemDriverMismatch, DRIVER},
        {cudaErrorUnsupportedPtxVersion, DRIVER},
        {cudaErrorNoKernelImageForDevice, CODE},
        {cudaErrorInvalidDeviceFunction, CODE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return rows[i].cause;
    return OTHER;
}

static enum Cause blas_cause_of(cublasStatus_t status) {
    return status == CUBLAS_STATUS_ALLOC_FAILED    ? MEMORY
           : status == CUBLAS_STATUS_SUCCESS       ? LIBRARY // it proposed nothing
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? LIBRARY
           : status == CUBLAS_STATUS_ARCH_MISMATCH ? LIBRARY
                                                   : OTHER;
}

// ---- the message ----

// "GPU 3, "; empty if even that call fails.
struct GpuName {
    char text[24];
};

static struct GpuName current_gpu(void) {
    struct GpuName name = {""};
    int index = -1;
    if (cudaGetDevice(&index) == cudaSuccess && index >= 0)
        snprintf(name.text, sizeof name.text, "GPU %d, ", index);
    return name;
}

_Noreturn void cuda_fail(const char *file, int line, cudaError_t status, const char *call) {
    const char *says = cudaGetErrorString(status), *name = cudaGetErrorName(status);
    if (is_mistake(status))
        base_fail(file, line, "status == cudaSuccess", "%s: CUDA says: %s (%s)", call, says, name);
    // The message leaves out the arguments, which only the source explains.
    enum Cause cause = cause_of(status);
    base_give_up(causes[cause].id, "%s%.*s: CUDA says: %s (%s); %s", current_gpu().text,
                 (int)strcspn(call, "("), call, says, name, causes[cause].advice);
}

_Noreturn void kernel_fail(const char *kernel, cudaError_t status) {
    const char *says = cudaGetErrorString(status), *name = cudaGetErrorName(status);
    enum Cause cause = cause_of(status);
    CHECK(!is_mistake(status), "%s: CUDA says: %s (%s)", kernel, says, name);
    cause = cause == KERNEL ? NAMED_KERNEL : cause;
    base_give_up(causes[cause].id, "%s%s: CUDA says: %s (%s); %s", current_gpu().text, kernel, says,
                 name, causes[cause].advice);
}

// cuBLASLt calls CUDA, and its own status says little about CUDA's error.
_Noreturn void blas_fail(struct Blas *b, const char *call, cublasStatus_t status,
                         const struct BlasKey *key) {
    cudaError_t cuda = cudaPeekAtLastError();
    enum Cause cause = cuda ? cause_of(cuda) : blas_cause_of(status);
    char *product = key ? key_describe(key) : base_format("none");
    char *why =
        cuda ? base_format("; CUDA says: %s (%s)", cudaGetErrorString(cuda), cudaGetErrorName(cuda))
             : base_format("%s", "");
    const char *says = b->lt.GetStatusString(status), *name = b->lt.GetStatusName(status);
    CHECK(cuda ? !is_mistake(cuda) : status != CUBLAS_STATUS_INVALID_VALUE,
          "%s: cuBLASLt says: %s (%s); the product: %s", call, says, name, product);
    base_give_up(causes[cause].id, "%s%s: cuBLASLt says: %s (%s)%s; the product: %s; %s",
                 current_gpu().text, call, says, name, why, product, causes[cause].advice);
}

void blas_check_refusal(struct Blas *b, const char *call, cublasStatus_t status,
                        const struct BlasKey *key) {
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED &&
        status != CUBLAS_STATUS_INVALID_VALUE && status != CUBLAS_STATUS_ARCH_MISMATCH)
        blas_fail(b, call, status, key);
}
