"""Counts what the machine code (SASS) of the CUDA kernels does, kernel by kernel.

    python3 scripts/bench/gpu_sass.py [FILE.o ...]    default: build/release/kernels/cuda/*.o

prints a line for each kernel and target: how many of its instructions access local and global
memory, by their width in bits, and how many use tensor cores. tests/scripts/test_sass.py holds the
kernels to what they should be. cuobjdump -sass shows the code itself; it is no part of what
nvcc needs, and takes half a minute for what is read here in seconds.

An object holds the code of each target as an ELF file of its own, in the section .nv_fatbin, and
each kernel in a section .text.NAME. Instructions have 16 bytes. NVIDIA does not document them: the
numbers below are what nvcc 13.0 makes of known PTX on compute capability 8.0 to 12.0; if
they were wrong, test_sass.py would fail.
"""

import collections
import glob
import re
import struct
import subprocess
import sys

# The operation is in the lowest 9 bits.
MEMORY = {0x181: "LDG", 0x186: "STG", 0x183: "LDL", 0x187: "STL"}
HMMA, HGMMA = 0x03C, 0x1F0
# Of an access to memory, bits 73 to 75; bytes and halves come with and without their sign.
WIDTHS = [8, 8, 16, 16, 32, 64, 128]
# Of HMMA, bits 75 and 76 and bits 82 and 83.
SHAPES = {1: "16816.F16", 2: "1688.F32", 3: "16816.F32"}
FORMATS = ["", ".BF16", ".TF32"]

Kernel = collections.namedtuple("Kernel", "file target symbol name count")


def sections(elf):
    """Name and bytes of each section of an ELF file that lies at the beginning of `elf`."""
    (at,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<HHH", elf, 58)
    heads = [struct.unpack_from("<IIQQQQ", elf, at + size * i) for i in range(count)]
    strings = heads[names][4]
    for name, kind, _, _, begin, length in heads:
        if kind != 8:  # without bytes in the file
            name = elf[strings + name : elf.index(b"\0", strings + name)].decode()
            yield name, elf[begin : begin + length]


def word(low, high):
    """The name of an instruction that is counted, or None."""
    operation = low & 0x1FF
    if operation in MEMORY:
        return "%s.%d" % (MEMORY[operation], WIDTHS[high >> 9 & 7])
    if operation == HMMA:
        return "HMMA.%s%s" % (SHAPES[high >> 11 & 3], FORMATS[high >> 18 & 3])
    return "HGMMA" if operation == HGMMA else None


def count(code):
    seen = collections.Counter(word(*pair) for pair in struct.iter_unpack("<QQ", code))
    del seen[None]
    return seen


def readable(symbols):
    """C++ names without parameters, with the formats' and the accesses' short names."""
    done = subprocess.run(
        ["c++filt"], input="\n".join(symbols), stdout=subprocess.PIPE, text=True, check=True
    )
    for name in done.stdout.split("\n"):
        name = name.replace("__nv_bfloat16", "bf16").replace("__half", "fp16")
        for value, access in enumerate(("SCALAR", "ALIGNED", "WHOLE")):
            name = name.replace("(Access)%d" % value, access)
        name = re.sub(r"\([A-Za-z_: ]+\)(\d)", r"\1", name)
        yield re.sub(r"^void |\(.*| ", "", name)


def kernels(path):
    """The kernels of an object, each for each target that it was compiled for."""
    with open(path, "rb") as file:
        fat = dict(sections(file.read())).get(".nv_fatbin", b"")
    found = []
    for match in re.finditer(rb"\x7fELF\x02\x01", fat):
        elf = fat[match.start() :]
        (flags,) = struct.unpack_from("<I", elf, 48)
        target = flags >> 8 & 0xFF if elf[8] >= 8 else flags & 0xFF
        for name, code in sections(elf):
            if name.startswith(".text."):
                found.append((target, name[len(".text.") :], count(code)))
    names = readable([symbol for _, symbol, _ in found])
    return [Kernel(path, *one[:2], name, one[2]) for one, name in zip(found, names)]


def main():
    for path in sys.argv[1:] or sorted(glob.glob("build/release/kernels/cuda/*.o")):
        for kernel in kernels(path):
            counts = " ".join("%s:%d" % one for one in sorted(kernel.count.items()))
            print("sm_%d %s %s" % (kernel.target, kernel.name, counts))


if __name__ == "__main__":
    main()
