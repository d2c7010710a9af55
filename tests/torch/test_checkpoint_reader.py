# tests/torch/checkpoint_reader.py on checkpoints that ./train has just written: the weights that it
# reads must have the hash that ./train printed, in every format and from any number of ranks; and a
# file that is damaged or unknown must be refused, by what is wrong with it. Speaks TAP.
#
# TRAIN names the program (default ./train).
import os
import re
import struct
import subprocess
import tempfile

import numpy as np

import checkpoint_reader as reader
import tap

TRAIN = os.environ.get("TRAIN", "./train")
LATE = ["--offload-optimizer", "cpu", "--delay-update"]
# A vocabulary that is padded, and groups that two ranks' shards are larger than.
FLAGS = "--data random --vocab 300 --layers 2 --heads 2 --channels 32 --seq-len 24 --batch 4"
FLAGS += " --threads 1 --log-every 0 --no-tensorboard --device cpu --dtype fp32"


def train(name, *flags):
    """Runs ./train; the folder of its checkpoint, and the hash that it printed."""
    out = os.path.join(folder, name)
    command = [TRAIN, *FLAGS.split(), "--out", out, "--cache", folder + "/cache", *flags]
    run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search("^weights hash: ([0-9a-f]{16})$", run.stdout, re.M)
    assert run.returncode == 0 and found, run.stdout
    (step,) = [name for name in os.listdir(out + "/checkpoints") if name.startswith("step-")]
    return os.path.join(out, "checkpoints", step), found.group(1)


def same_hash(name, number, *flags):
    """The run's hash from its masters; the checkpoint."""
    path, printed = train(*flags)
    c = reader.read(path)
    computed = "%016x" % c.hash()
    good = computed == printed and c.format == number
    tap.result(good, name, "format %d, %s, ./train said %s" % (c.format, computed, printed))
    return c


def test_formats():
    c = same_hash("format 5: the weights have the run's hash", 5, "one", "--steps", "1")
    tap.result((c.step, c.updates) == (1, 1), "its step and updates", (c.step, c.updates))
    tap.result(c.sizes() == [2, 32, 24, 300, 2], "the model's sizes", c.sizes())
    wte = c.parameters()["ends.wte"]
    tap.result(
        wte.shape == (300, 32) and c.arrays["master"][0].size > wte.size + 26 * 32,
        "the padding of the vocabulary is left out",
        wte.shape,
    )
    tap.result(
        all(np.any(c.parameters("v")[name]) for name in c.parameters()),
        "every weight has had a gradient: AdamW's second moments",
        "one is 0",
    )
    same_hash("bf16: the hash is of the fp32 weights", 5, "bf16", "--steps", "2", "--dtype", "bf16")
    same_hash(
        "the files of two ranks are joined",
        5,
        "two",
        "--steps",
        "2",
        "--ranks",
        "2",
        "--batch",
        "2",
        "--zero",
        "3",
    )


def test_late():
    first = same_hash("after one update, not late", 5, "on_time", "--steps", "1")
    c = same_hash("format 6: the weights have the run's hash", 6, "late", "--steps", "2", *LATE)
    tap.result(
        c.hash("in_use") == first.hash(),
        "the weights in use are those before the delayed update",
        "%x %x" % (c.hash("in_use"), first.hash()),
    )
    tap.result(c.hash("in_use") != c.hash(), "and not those after it", "%x" % c.hash())
    said = tap.raises(reader.BadCheckpoint, lambda: first.parameters("in_use"))
    tap.result(said and "format 5" in said, "format 5 has no weights in use", said)


def test_frozen():
    c = same_hash(
        "format 9, a layer that is not trained", 9, "frozen", "--steps", "1", "--freeze", "layers:1"
    )
    tap.result(
        "block.1.norm1.weight" not in c.parameters("v") and "ends.wte" in c.parameters("v"),
        "it has no moments",
        list(c.parameters("v")),
    )
    flags = ["--steps", "2", "--freeze", "layers:1", *LATE]
    same_hash("format 10, an update that is late besides", 10, "frozen_late", *flags)


def test_adapters():
    flags = ["--steps", "2", "--lora-rank", "3", "--lora-targets", "attention,c_fc"]
    c = same_hash("format 13: adapters and the hash of their base", 13, "adapters", *flags)
    named = c.parameters()
    tap.result(
        len(named) == 2 * 6
        and named["adapter.1.q.lora_B"].shape == (96, 3)
        and named["adapter.0.up.lora_A"].shape == (3, 32),
        "they are there, and nothing else",
        {name: value.shape for name, value in named.items()},
    )
    tap.result(all(np.any(v) for v in named.values()), "every A and B has been trained", "one is 0")
    shards = ["--ranks", "2", "--batch", "2", "--zero", "3"]
    same_hash("the adapters of two ranks are joined", 13, "two_adapters", *flags, *shards)
    same_hash("format 14, an update that is late besides", 14, "adapters_late", *flags, *LATE)
    judged = ["--steps", "1", "--val-every", "1", "--keep-best"]
    same_hash("format 15, judged besides", 15, "adapters_judged", *flags[2:], *judged)


def write_again(path, data):
    """A file with these bytes and their hash, in a folder of its own."""
    os.makedirs(path)
    data = np.frombuffer(bytes(data), np.uint8)
    with open(path + "/rank-0000.state", "wb") as f:
        f.write(data.tobytes() + struct.pack("<Q", reader.file_hash(data)))
    return path


def test_algorithms():
    """A GPU's file has algorithms of matrix products between the identity and the groups."""
    path, printed = train("gpu", "--steps", "1")
    data = open(path + "/rank-0000.state", "rb").read()
    groups = 88 + struct.unpack("<I", data[36:40])[0]
    with_some = (
        data[:68] + struct.pack("<I", 11) + data[72:groups] + b"algorithms!" + data[groups:-8]
    )
    c = reader.read(write_again(folder + "/algorithms", with_some))
    tap.result("%016x" % c.hash() == printed, "algorithms of products are passed over", c.hash())


def refused(name, words, path):
    said = tap.raises(reader.BadCheckpoint, lambda: reader.read(path))
    tap.result(said and re.search(words, said), "refused: " + name, said)


def test_damage():
    path, _ = train("whole", "--steps", "1")
    data = open(path + "/rank-0000.state", "rb").read()
    for i in (45, 300, len(data) // 2, len(data) - 9, len(data) - 1):
        bad = bytearray(data)
        bad[i] ^= 4
        os.makedirs(folder + "/flip%d" % i)
        with open(folder + "/flip%d/rank-0000.state" % i, "wb") as f:
            f.write(bad)
        refused("a bit of byte %d flipped" % i, "flip%d.*checksum" % i, folder + "/flip%d" % i)
    for n in (0, 7, 40, len(data) - 1):
        os.makedirs(folder + "/cut%d" % n)
        with open(folder + "/cut%d/rank-0000.state" % n, "wb") as f:
            f.write(data[:n])
        refused(
            "the first %d bytes" % n, "cut%d.*(ends too early|checksum)" % n, folder + "/cut%d" % n
        )
    refused("no file", "there is no", folder + "/nothing")
    refused(
        "format 3",
        "format.*state 3",
        write_again(folder + "/three", b"zero.c state 3\n\0" + data[16:-8]),
    )
    refused("text", "format", write_again(folder + "/text", b"Call me Ishmael. " * 9))
    # Sizes that do not fit, behind a hash that does.
    refused(
        "more groups than fit",
        "past its end",
        write_again(folder + "/groups", data[:32] + struct.pack("<I", 2**31) + data[36:-8]),
    )
    refused(
        "bytes left over",
        "4 bytes are left",
        write_again(folder + "/longer", data[:-8] + b"\0\0\0\0"),
    )


def test_ranks_missing():
    path, _ = train("four", "--steps", "1", "--ranks", "4", "--batch", "1")
    os.remove(path + "/rank-0002.state")
    refused("a rank's file that is missing", r"4 ranks.*\[0, 1, 3\]", path)


with tempfile.TemporaryDirectory() as folder:
    test_formats()
    test_late()
    test_frozen()
    test_adapters()
    test_algorithms()
    test_damage()
    test_ranks_missing()
tap.finish()
