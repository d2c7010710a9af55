# The machine code of the CUDA kernels is what their source means: arrays move in packs of 16 bytes,
# nothing goes through local memory that need not, products use tensor cores. Speaks TAP.
#
# It reads the objects of build/release, for every target that they were compiled for
# (scripts/bench/gpu_sass.py), and holds each kernel to the rules below by its name. What a rule
# excepts stands in a table, and an entry that no kernel needs is a fault too.
import glob
import os
import re
import sys

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


if not glob.glob(FOLDER + "/*.ptxas"):
    print("1..0 # SKIP this build has no CUDA")
    sys.exit(0)
check_build()
tap.finish()
