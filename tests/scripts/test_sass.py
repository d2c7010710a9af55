# The machine code of the CUDA kernels is what their source means: arrays move in packs of 16 bytes,
# nothing goes through local memory that need not, products use tensor cores. Speaks TAP.
#
# It reads the objects of build/release, for every target that they were compiled for
# (scripts/bench/gpu_sass.py), and holds each kernel to the rules below by its name. Kernels made to
# break a rule are compiled last, and each must be found. What a rule excepts stands in a table, and
# an entry that no kernel needs is a fault too.
import collections
import glob
import os
import re
import subprocess
import sys
import tempfile

sys.path[:0] = ["scripts/bench", "tests/torch"]
import gpu_sass
import tap

FOLDER = "build/release/kernels/cuda"

# ---- what is excepted, and why ----

# Kernels bound by memory that spill: bytes, at most, on the targets named.
SPILLS = [
    # 40 registers, so that six blocks share an SM; four are kept in memory through the loop.
    (r"classifier_gradients_kernel<bf16,WHOLE>", [90], 28),
    (r"adamw_kernel<..16,float,bf16,2,ALIGNED>", [120], 8),
]
# Pack kernels whose widest load and store, in bits, are not both of 128.
WIDTHS = [
    # Four elements a thread in every format.
    (r"adamw_kernel<..16,bf16,bf16,[12],", 64, 64),
    (r"adamw_kernel<float,bf16,bf16,[12],", 128, 64),
    (r"cast_kernel<..16,..16,", 64, 64),
    (r"cast_kernel<..16,float,", 128, 64),
    (r"cast_kernel<float,..16,", 64, 128),
    # Rows of fp32 set the pace of 16-bit ones.
    (r"embed_backward_(tiles|positions)_kernel<float,..16,", 128, 64),
    # A lane adds up four channels of the parts.
    (r"embed_backward_parts_kernel<..16,", 64, 64),
    # What they write is a number or two for a row, for a block, or for all; zeros are not read.
    (r"classifier_part_kernel<", 128, 64),
    (r"sum_chunks_kernel<", 128, 64),
    (r"embed_zero_kernel<", 0, 128),
    (r"matmul_column_sums_kernel<", 128, 32),
    # Codes of 4 and 8 bits.
    (r"(de)?quantize_kernel<", 64, 32),
    (r"nf4_quantize_kernel<", 128, 32),
    (r"nf4_dequantize_kernel<", 32, 128),
]
# Kernels of whole packs with narrower accesses: the bits of the narrowest load and store. A single
# element, the target's logit; codes of 4 bits, and of 8.
NARROW = [
    (r"classifier_(part_)?kernel<..16,WHOLE>", 16, 32),
    (r"nf4_quantize_kernel<", 32, 8),
    (r"nf4_dequantize_kernel<", 8, 128),
]
# Products of 16 x 8 x 16 in a kernel: those of a tile that a warp makes, for each kind of mask.
PRODUCTS = [
    (r"attention_forward_mma_kernel<", 3 * 2 * 64),
    (r"attention_backward_dkv_mma_kernel<", 3 * 4 * 16),
    (r"attention_backward_dq_mma_kernel<", 3 * 3 * 16),
]

# ---- the rules ----

used = set()


def entry(table, kernel):
    """The first entry of a table that fits the kernel, or None."""
    for one in table:
        pattern = one if isinstance(one, str) else one[0]
        targets = one[1] if len(one) > 1 and isinstance(one[1], list) else [kernel.target]
        if re.match(pattern, kernel.name) and kernel.target in targets:
            used.add(pattern)
            return one
    return None


def widths(kernel, word):
    return [int(key[len(word) + 1 :]) for key in kernel.count if key.startswith(word + ".")]


def local_fault(kernel, spilled):
    """`spilled`: bytes of stores and loads, as the assembler said when it compiled the kernel."""
    bits = sum(
        n * int(word.split(".")[1])
        for word, n in kernel.count.items()
        if word.startswith(("LDL.", "STL."))
    )
    if bits != 8 * spilled:
        return "%d bytes of local memory, and %d spilled: an array?" % (bits // 8, spilled)
    if not spilled or kernel.name.startswith("attention_"):
        return None  # test_registers.sh holds attention to its spills
    allowed = entry(SPILLS, kernel)
    if not allowed or spilled > allowed[2]:
        return "%d bytes spill in a kernel that is bound by memory" % spilled
    return None


def pack_fault(kernel):
    access = re.search(r"\b(ALIGNED|WHOLE)\b|<uint4>", kernel.name)
    if not access:
        return None
    loads, stores = widths(kernel, "LDG"), widths(kernel, "STG")
    wanted = (128, 128)
    if max(loads + [0]) < 128 or max(stores + [0]) < 128:
        wanted = (entry(WIDTHS, kernel) or ("", 128, 128))[1:]
    for name, seen, bits in (("load", loads, wanted[0]), ("store", stores, wanted[1])):
        if max(seen + [0]) < bits:
            return "its widest %s has %d bits; %d" % (name, max(seen + [0]), bits)
    if access[0] == "WHOLE" and min(stores + loads) < 32:
        narrow = (entry(NARROW, kernel) or ("", 32, 32))[1:]
        if min(loads) < narrow[0] or min(stores) < narrow[1]:
            return "an access of %d bits beside whole packs" % min(stores + loads)
    return None


def product_fault(kernel):
    if "_wgmma_" in kernel.name:
        return None if kernel.count["HGMMA"] else "no wgmma"
    if "_mma_" not in kernel.name:
        return None
    known = entry(PRODUCTS, kernel)
    if not known:
        return "in no table of products"
    word = "HMMA.16816.F32" + (".BF16" if "<bf16" in kernel.name else "")
    if kernel.count[word] != known[1]:
        return "%d products %s; %d" % (kernel.count[word], word, known[1])
    return None


# ---- what was compiled ----


def spills(log):
    """What the assembler said of each kernel, by target and symbol: the bytes that spill."""
    found = {}
    with open(log) as file:
        for line in file:
            head = re.search(r"Compiling entry function '(\w+)' for 'sm_(\d+)", line)
            bytes_ = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
            if head:
                key = (int(head[2]), head[1])
                found[key] = 0
            elif bytes_ and found:
                found[key] += int(bytes_[1]) + int(bytes_[2])
    return found


def read(path):
    """The kernels of an object with their spills, and what is wrong with the two lists."""
    said = spills(path[:-2] + ".ptxas")
    all_ = gpu_sass.kernels(path)
    read_ = {(kernel.target, kernel.symbol) for kernel in all_}
    missing = sorted(set(said) - read_)
    return [(k, said.get((k.target, k.symbol), 0)) for k in all_], missing


def check_build():
    kernels, missing = [], []
    for path in sorted(glob.glob(FOLDER + "/*.o")):
        if os.path.exists(path[:-2] + ".ptxas"):
            more, lost = read(path)
            kernels += more
            missing += lost
    targets = {kernel.target for kernel, _ in kernels}
    print("# %d kernels for sm_%s" % (len(kernels), " ".join(map(str, sorted(targets)))))
    tap.result(kernels and not missing, "every kernel that was compiled is read", missing[:5])
    rules = [
        ("local memory holds what the assembler spilled, and of kernels bound by memory nothing",
         lambda kernel, spilled: local_fault(kernel, spilled)),
        ("kernels of packs load and store 128 bits, and whole packs alone",
         lambda kernel, _: pack_fault(kernel)),
        ("attention's products are all there, on tensor cores and in their format",
         lambda kernel, _: product_fault(kernel)),
    ]
    for name, rule in rules:
        faults = [(k.target, k.name, rule(k, spilled)) for k, spilled in kernels]
        faults = ["sm_%d %s: %s" % fault for fault in faults if fault[2]]
        tap.result(not faults, name, "\n".join(faults[:20]))
    tables = [pattern for pattern, on, _ in SPILLS if targets.issuperset(on)]
    tables += [one[0] for one in WIDTHS + NARROW + PRODUCTS]
    idle = sorted(set(tables) - used)
    tap.result(not idle, "each exception is needed", "\n".join(idle))


# ---- kernels that break a rule ----

BROKEN = r"""
#include <cuda_bf16.h>
#include <cuda_fp16.h>
enum Access { SCALAR, ALIGNED, WHOLE };
template <class T, Access A> __global__ void copy_kernel(const T *x, T *y) { *y = *x; }
template <class T, Access A> __global__ void narrow_load_kernel(const int *x, int4 *y) {
    *y = make_int4(x[0], x[5], x[10], x[15]);
}
template <class T, Access A> __global__ void narrow_store_kernel(const int4 *x, int *y) {
    int4 v = *x;
    y[0] = v.x, y[5] = v.y, y[10] = v.z, y[15] = v.w;
}
template <class T, Access A> __global__ void tail_kernel(const int4 *x, int4 *y, short *z) {
    *y = *x, *z = (short)x->x;
}
__global__ void array_kernel(const int *x, int *y) {
    int kept[32];
    for (int i = 0; i < 32; i++)
        kept[x[i] & 31] = i;
    *y = kept[*x & 31];
}
template <class T> __device__ void mma(float *d, const unsigned *a, T) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%4,%4,%4},"
                 "{%4,%4},{%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(*a));
}
template <class T, int N> __global__ void attention_backward_dq_mma_kernel(float *d, unsigned *a) {
    float sum[4] = {d[0], d[1], d[2], d[3]};
#pragma unroll
    for (int i = 0; i < N; i++)
        mma(sum, a, T());
    for (int i = 0; i < 4; i++)
        d[i] = sum[i];
}
__global__ void some_mma_kernel(float *d, const float *a) { *d = fmaf(*a, *a, *d); }
__global__ void some_wgmma_kernel(float *d, const float *a) { *d = fmaf(*a, *a, *d); }
template __global__ void copy_kernel<int4, WHOLE>(const int4 *, int4 *);
template __global__ void copy_kernel<int4, ALIGNED>(const int4 *, int4 *);
template __global__ void copy_kernel<__half, SCALAR>(const __half *, __half *);
template __global__ void copy_kernel<int2, ALIGNED>(const int2 *, int2 *);
template __global__ void narrow_load_kernel<float, WHOLE>(const int *, int4 *);
template __global__ void narrow_store_kernel<float, ALIGNED>(const int4 *, int *);
template __global__ void tail_kernel<__half, WHOLE>(const int4 *, int4 *, short *);
template __global__ void tail_kernel<__half, ALIGNED>(const int4 *, int4 *, short *);
template __global__ void attention_backward_dq_mma_kernel<__half, 144>(float *, unsigned *);
template __global__ void attention_backward_dq_mma_kernel<__half, 143>(float *, unsigned *);
template __global__ void attention_backward_dq_mma_kernel<__nv_bfloat16, 144>(float *, unsigned *);
"""
FOUND = {
    "copy_kernel<int4,WHOLE>": None,
    "copy_kernel<int4,ALIGNED>": None,
    "copy_kernel<fp16,SCALAR>": None,
    "copy_kernel<int2,ALIGNED>": "its widest load has 64 bits; 128",
    "narrow_load_kernel<float,WHOLE>": "its widest load has 32 bits; 128",
    "narrow_store_kernel<float,ALIGNED>": "its widest store has 32 bits; 128",
    "tail_kernel<fp16,WHOLE>": "an access of 16 bits beside whole packs",
    "tail_kernel<fp16,ALIGNED>": None,
    "array_kernel": "bytes of local memory, and 0 spilled: an array?",
    "attention_backward_dq_mma_kernel<fp16,144>": None,
    "attention_backward_dq_mma_kernel<fp16,143>": "143 products HMMA.16816.F32; 144",
    "attention_backward_dq_mma_kernel<bf16,144>": "0 products HMMA.16816.F32.BF16; 144",
    "some_mma_kernel": "in no table of products",
    "some_wgmma_kernel": "no wgmma",
}


def check_broken(nvcc, targets):
    with tempfile.TemporaryDirectory() as folder:
        source, log = folder + "/broken.cu", folder + "/broken.ptxas"
        with open(source, "w") as file:
            file.write(BROKEN)
        codes = ["-gencode=arch=compute_%d,code=sm_%d" % (t, t) for t in targets]
        command = [nvcc, "-std=c++17", "-Xptxas", "-v", *codes, "-c", source]
        with open(log, "w") as file:
            done = subprocess.run(command + ["-o", folder + "/broken.o"], stderr=file)
        if done.returncode:
            with open(log) as file:
                tap.result(False, "kernels that break a rule are compiled", file.read())
            return
        kernels, missing = read(folder + "/broken.o")
    for name, wanted in FOUND.items():
        seen = []
        for kernel, spilled in kernels:
            if kernel.name == name:
                fault = local_fault(kernel, spilled) or pack_fault(kernel) or product_fault(kernel)
                if wanted is None or fault is None:
                    good = fault is wanted
                else:
                    good = wanted in fault
                seen.append((kernel.target, good, fault))
        good = [target for target, right, _ in seen if right] == targets and not missing
        tap.result(good, "%s: %s" % (name, wanted or "no fault"), seen)
    spilled = [kernel for kernel, _ in kernels if kernel.name.startswith("copy_kernel<int4,W")][0]
    stored = collections.Counter({"STL.32": 2})
    spilled = spilled._replace(name="spilling_kernel", count=spilled.count + stored)
    fault = local_fault(spilled, 8)
    tap.result(fault == "8 bytes spill in a kernel that is bound by memory", "a spill", fault)


if not glob.glob(FOLDER + "/*.ptxas"):
    print("1..0 # SKIP this build has no CUDA")
    sys.exit(0)
check_build()
with open("build/release/features.mk") as file:
    home = re.search(r"^CUDA_HOME := (.*)", file.read(), re.M)[1]
check_broken(home + "/bin/nvcc", [80, 90, 120])
tap.finish()
