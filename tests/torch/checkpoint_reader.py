# Reads checkpoints of ./train, for comparisons with other programs. Needs numpy and a C compiler.
#
#   python3 tests/torch/checkpoint_reader.py FOLDER   prints what a checkpoint holds, and its hash
#
#   c = read("out/checkpoints/step-00000100")       all ranks' files, joined
#   c.parameters()["block.0.mlp.fc.weight"]         fp32, shaped (rows, columns) or (rows,)
#   c.hash()                                        the weights hash that ./train prints
#
# zero/checkpoint/file.c defines the format and model/params.c where a parameter lies in its
# group. Nothing of a file is believed before the XXH64 behind it is found right. That hash is a
# chain of multiplications, which Python makes at some 20 MB/s: so kernels/hash.h is compiled (with
# $CC or cc) and called.
#
# Errors: BadCheckpoint, with the file and what is wrong. tests/torch/test_checkpoint_reader.py
# reads what ./train wrote; losses_gpt2_torch.py takes its initial weights from here.
import ctypes
import functools
import glob
import os
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# A format is 5, and of these those that it has, added up.
LATE, JUDGED, FROZEN, ADAPTERS = 1, 2, 4, 8
FORMATS = range(5, 21)
# Of validations the best: step, sequences, loss; those since. If JUDGED, behind FIXED.
BEST = struct.Struct("<QQfI")
MAGIC = {b"zero.c state %d\n\0" % n: n for n in FORMATS if n < 10}
MAGIC |= {b"zero.c state %d\0" % n: n for n in FORMATS if n >= 10}
# An adapter of GPT-2 for each target: its name, columns and rows, times the channels; and the words
# of --lora-targets that name it.
TARGETS = [
    ("q", 1, 3, {"all", "all-linear", "attention", "c_attn"}),
    ("o", 1, 1, {"all", "all-linear", "attention", "c_proj", "attn.c_proj"}),
    ("up", 1, 4, {"all", "all-linear", "mlp", "c_fc"}),
    ("down", 4, 1, {"all", "all-linear", "mlp", "c_proj", "mlp.c_proj"}),
]
# step; rank, size, groups, bytes of identity; updates, hysteresis, good steps; scale; bytes of
# algorithms; the grid: tp, dp, pp, replicas
FIXED = struct.Struct("<QIIIIQQQfIIIII")
VOCAB_MULTIPLE = 128  # model/config.c


class BadCheckpoint(Exception):
    pass


def has(number, what):
    return bool((number - 5) & what)


def arrays_of(number):
    return ["master", "m", "v"] + (["in_use"] if has(number, LATE) else [])


# ---- hashes ----


@functools.lru_cache()
def compile_hash():
    """kernels/hash.h as a function (address, bytes) -> XXH64."""
    source = '#include "kernels/hash.h"\nuint64_t hash_of(const void *p, size_t n)'
    source += "{ return hash64(p, n, 0); }\n"
    command = [os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-I", ROOT]
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "hash.so")
        command += ["-x", "c", "-", "-o", library]
        subprocess.run(command, input=source.encode(), check=True)
        call = ctypes.CDLL(library).hash_of
    call.argtypes, call.restype = [ctypes.c_void_p, ctypes.c_size_t], ctypes.c_uint64
    return call


def file_hash(data):
    """XXH64 with seed 0 of an array of bytes."""
    return compile_hash()(data.ctypes.data, data.size)


def mix(x):
    """rng_mix of kernels/dtype.h, on an array of uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def weights_hash(values, index):
    """The share of some weights, the first of which is the model's weight `index`, in the hash of
    all (params_hash of model/params.c)."""
    bits = values.ravel().view(np.uint32).astype(np.uint64)
    places = np.arange(index, index + bits.size, dtype=np.uint64)
    return int(mix((places * np.uint64(0x9E3779B97F4A7C15)) ^ bits).sum(dtype=np.uint64))


# ---- one rank's file ----


class File:
    """What a file holds: format, step, updates, rank, size, identity (a dictionary), and for each
    group its numel, the element that the file begins at, and its arrays by name."""

    def __init__(self, path):
        self.path = path
        self.data = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else np.empty(0, "u1")
        if self.data.size < 16 + FIXED.size + 8:
            self.fail("it ends too early")
        self.format = MAGIC.get(self.data[:16].tobytes())
        if not self.format:
            self.fail("its format, %r, is none of %s" % (self.data[:16].tobytes(), list(FORMATS)))
        stored = int.from_bytes(self.data[-8:].tobytes(), "little")
        if file_hash(self.data[:-8]) != stored:
            self.fail("its checksum is wrong")
        self.at = 16
        self.read_head()
        self.read_groups()
        if self.at != self.data.size - 8:
            self.fail("%d bytes are left over" % (self.data.size - 8 - self.at))

    def fail(self, what):
        raise BadCheckpoint("%s: %s" % (self.path, what))

    def take(self, n):
        """The next n bytes."""
        if n > self.data.size - 8 - self.at:
            self.fail("%d bytes are promised at %d, past its end" % (n, self.at))
        self.at += n
        return self.data[self.at - n : self.at]

    def read_head(self):
        fixed = FIXED.unpack(self.take(FIXED.size).tobytes())
        self.step, self.rank, self.size, self.ngroup, text = fixed[:5]
        self.updates, choices, self.grid = fixed[5], fixed[9], fixed[10:]
        if has(self.format, JUDGED):
            self.best = BEST.unpack(self.take(BEST.size).tobytes())
        adapters = has(self.format, ADAPTERS)
        self.base_hash = int.from_bytes(self.take(8).tobytes(), "little") if adapters else 0
        if self.grid[0] > 1:
            self.fail("it has a part of the model, of %d; only whole ones are read" % self.grid[0])
        lines = self.take(text).tobytes().decode().splitlines()
        self.identity = dict(line.rsplit(" ", 1) for line in lines if " " in line)
        self.take(choices)

    def read_groups(self):
        columns = 4 if has(self.format, FROZEN) else 3
        places = np.frombuffer(self.take(8 * columns * self.ngroup).tobytes(), np.uint64)
        self.groups = []
        names = arrays_of(self.format)
        for numel, begin, count, *narray in places.reshape(self.ngroup, columns).tolist():
            if begin + count > numel:
                self.fail("a group of %d has elements %d to %d" % (numel, begin, begin + count))
            group = {"numel": numel, "begin": begin, "count": count}
            for i, name in enumerate(names):
                # A copy: the file's own numbers lie at any address. A group that is not trained
                # has its weights alone.
                here = count if not narray or i < narray[0] else 0
                group[name] = np.frombuffer(self.take(4 * here).tobytes(), np.float32)
            self.groups.append(group)


# ---- a checkpoint ----


class Checkpoint:
    """The files of all ranks: arrays[name][g] is the whole of group g, fp32, without padding of
    shards; empty if the group has no such array. With adapters those alone are there."""

    def __init__(self, files):
        first = files[0]
        self.format, self.step, self.updates = first.format, first.step, first.updates
        self.identity, self.base_hash = first.identity, first.base_hash
        if [f.rank for f in files] != list(range(first.size)):
            first.fail(
                "of %d ranks' files, those of ranks %s are there"
                % (first.size, [f.rank for f in files])
            )
        for f in files:
            if (f.format, f.step, f.ngroup, f.base_hash) != (
                first.format,
                first.step,
                first.ngroup,
                first.base_hash,
            ):
                f.fail("it is not of the same step and model as %s" % first.path)
        self.arrays = {name: [] for name in arrays_of(self.format)}
        for g in range(first.ngroup):
            self.join([f.groups[g] for f in files], first)

    def join(self, parts, first):
        at = 0
        if self.base_hash and not any(part["count"] for part in parts):
            parts = []  # of the base
        for part in parts:
            if part["numel"] != parts[0]["numel"] or part["begin"] != at:
                first.fail("the ranks' shards of a group do not fit together")
            at += part["count"]
        if parts and at != parts[0]["numel"]:
            first.fail("of a group of %d elements %d are there" % (parts[0]["numel"], at))
        for name, whole in self.arrays.items():
            whole.append(np.concatenate([part[name] for part in parts] or [np.empty(0, "f4")]))

    def sizes(self):
        """layers, channels, seq_len, vocab, heads"""
        names = ["--layers", "--channels", "--seq-len", "vocabulary", "--heads"]
        return [int(self.identity[name]) for name in names]

    def parameters(self, which="master"):
        """The model's weights by name: those that AdamW keeps ("master"; "m" and "v" likewise), or
        the ones "in_use" while an update is late. The padding of the vocabulary is left out."""
        if which not in self.arrays:
            raise BadCheckpoint("format %d has no array '%s'" % (self.format, which))
        layers, c, t, vocab, _ = self.sizes()
        layouts = [("ends", ends_layout(c, t, vocab))]
        layouts += [("block.%d" % i, block_layout(c)) for i in range(layers)]
        if self.base_hash:
            adapter = adapter_layout(c, self.identity)
            layouts += [("adapter.%d" % i, adapter) for i in range(layers)]
        if len(layouts) != len(self.arrays[which]):
            raise BadCheckpoint("%d groups, and %d layers" % (len(self.arrays[which]), layers))
        named = {}
        for (group, layout), values in zip(layouts, self.arrays[which]):
            at = 0
            if not values.size:  # an array that the group has not
                continue
            for name, shape, rows in layout:
                whole = values[at : at + int(np.prod(shape))]
                at += whole.size
                named["%s.%s" % (group, name)] = whole.reshape(shape)[:rows]
            if at != values.size:
                raise BadCheckpoint("group %s: %d elements, expected %d" % (group, values.size, at))
        return named

    def base_size(self):
        """How many weights the model has without adapters."""
        layers, c, t, vocab, _ = self.sizes()
        rows = ends_layout(c, t, vocab) + layers * block_layout(c)
        return sum(int(np.prod((real, *shape[1:]))) for _, shape, real in rows)

    def hash(self, which="master"):
        """The weights hash that ./train printed: with adapters, the base's and theirs."""
        index, total = self.base_size() if self.base_hash else 0, self.base_hash
        for values in self.parameters(which).values():
            total += weights_hash(values, index)
            index += values.size
        return total % 2**64


def ends_layout(c, t, vocab):
    """(name, shape, rows that are real) in the order of layout_ends in model/params.c"""
    padded = (vocab + VOCAB_MULTIPLE - 1) // VOCAB_MULTIPLE * VOCAB_MULTIPLE
    ends = [("wte", (padded, c), vocab), ("wpe", (t, c), t)]
    return ends + [("norm.weight", (c,), c), ("norm.bias", (c,), c)]


def block_layout(c):
    """Likewise, of layout_block. Weights are (out, in)."""
    shapes = [("attention.qkv.weight", (3 * c, c)), ("attention.proj.weight", (c, c))]
    shapes += [("mlp.fc.weight", (4 * c, c)), ("mlp.out.weight", (c, 4 * c))]
    shapes += [("norm1.weight", (c,)), ("norm1.bias", (c,)), ("attention.qkv.bias", (3 * c,))]
    shapes += [("attention.proj.bias", (c,)), ("norm2.weight", (c,)), ("norm2.bias", (c,))]
    shapes += [("mlp.fc.bias", (4 * c,)), ("mlp.out.bias", (c,))]
    return [(name, shape, shape[0]) for name, shape in shapes]


def adapter_layout(c, identity):
    """Likewise, of layout_adapter: the A's, then the B's."""
    rank, words = int(identity["--lora-rank"]), set(identity["--lora-targets"].split(","))
    here = [target for target in TARGETS if target[3] & words]
    shapes = [(name + ".lora_A", (rank, columns * c)) for name, columns, _, _ in here]
    shapes += [(name + ".lora_B", (rows * c, rank)) for name, _, rows, _ in here]
    return [(name, shape, shape[0]) for name, shape in shapes]


def read(folder):
    """The checkpoint in a folder such as out/checkpoints/step-00000100."""
    paths = sorted(glob.glob(os.path.join(glob.escape(folder), "rank-*.state")))
    if not paths:
        raise BadCheckpoint("%s: there is no rank-*.state" % folder)
    return Checkpoint([File(path) for path in paths])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: checkpoint_reader.py FOLDER")
    try:
        c = read(sys.argv[1])
        print("format %d, step %d, %d updates" % (c.format, c.step, c.updates))
        for name, value in c.identity.items():
            print("%s %s" % (name, value))
        print("weights hash: %016x" % c.hash())
    except BadCheckpoint as e:
        sys.exit("checkpoint_reader: %s" % e)


if __name__ == "__main__":
    main()
