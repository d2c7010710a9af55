# The losses of ./train on a GPU against PyTorch's, from the same initial weights on the same data.
#
#   python3 tests/losses_gpt2_torch.py shards DIR         writes DIR/batch-NN.bin and DIR/val.bin
#   python3 tests/losses_gpt2_torch.py compare DIR        reads DIR/init (a checkpoint of one step
#                                                         at --lr 0) and the logs of DIR/fp32, bf16
#
# An epoch of ./train takes shards in order and shuffles inside each. So a shard that holds the
# samples of one step, and no more, says which step sees what, whatever the order inside. The tokens
# are bytes of this repository's sources. scripts/gpu_check.sh runs all of it.
#
# fp32 must agree to 1e-4. bf16 need not agree with anything exactly: its distance to PyTorch's fp32
# must be at most twice that of PyTorch's own bf16 (or 0.01, where both are small).
import glob
import json
import struct
import sys

import numpy as np
import torch

from bench_gpt2_torch import GPT, MODELS, VOCAB, make_optimizer, train_step

STEPS, BATCH, T, LR = 50, 4, 1024, 3e-4
BLOCK = ["qkv.weight", "proj.weight", "fc.weight", "out.weight", "norm1.weight", "norm1.bias"]
BLOCK += ["qkv.bias", "proj.bias", "norm2.weight", "norm2.bias", "fc.bias", "out.bias"]


def write_shards(folder):
    names = sorted(glob.glob("kernels/**/*.c", recursive=True) + glob.glob("[zmd]*/*.c"))
    text = np.frombuffer(b"".join(open(n, "rb").read() for n in names), np.uint8)
    need = BATCH * T + 1
    text = np.resize(text, (STEPS + 1) * need)
    for i in range(STEPS + 1):
        name = "val" if i == STEPS else f"batch-{i:02d}"
        head = np.zeros(256, np.int32)
        head[:3] = 20240520, 1, need
        with open(f"{folder}/{name}.bin", "wb") as f:
            f.write(head.tobytes() + text[i * need : (i + 1) * need].astype(np.uint16).tobytes())


def read_batch(folder, step):
    tokens = np.fromfile(f"{folder}/batch-{step:02d}.bin", np.uint16)[512:].astype(np.int64)
    rows = [tokens[i * T : (i + 1) * T + 1] for i in range(BATCH)]
    return torch.tensor(np.stack(rows), device="cuda")


def read_masters(path):
    """The fp32 weights of each group, from one rank's file (zero/checkpoint_file.c)."""
    data = np.memmap(path, np.uint8, "r")
    assert bytes(data[:15]) == b"zero.c state 2\n", "not a checkpoint of this version"
    _, _, size, ngroup, text = struct.unpack("<QIIII", data[16:40].tobytes())
    assert size == 1, "a checkpoint of one rank is needed"
    at = 40 + text
    groups = np.frombuffer(data[at : at + 24 * ngroup].tobytes(), np.uint64).reshape(ngroup, 3)
    at += 24 * ngroup
    masters = []
    for _, _, count in groups.astype(np.int64):
        masters.append(np.frombuffer(data[at : at + 4 * count].tobytes(), np.float32))
        at += 12 * count
    return masters


def load(model, masters):
    """Weights lie in a group in the order of model/params.c."""
    w = dict(model.named_parameters())
    names = [["wte.weight", "wpe.weight", "norm.weight", "norm.bias"]]
    names += [[f"blocks.{i}.{n}" for n in BLOCK] for i in range(len(masters) - 1)]
    with torch.no_grad():
        for group, values in zip(names, masters):
            at = 0
            for name in group:
                n = w[name].numel()
                w[name].copy_(torch.from_numpy(values[at : at + n].copy()).view_as(w[name]))
                at += n


def torch_losses(folder, masters, bf16):
    model = GPT(*MODELS["gpt2"]).cuda()
    load(model, masters)
    model.columns = VOCAB
    optimizer = make_optimizer(model, LR)
    batches = (read_batch(folder, i) for i in range(STEPS))
    return [train_step(model, model, optimizer, b, bf16).item() for b in batches]


def our_losses(folder, dtype):
    lines = [json.loads(line) for line in open(f"{folder}/{dtype}/log.jsonl")]
    return [line["loss"] for line in lines if "loss" in line]


def compare(folder):
    torch.backends.cuda.matmul.allow_tf32 = False
    (state,) = glob.glob(f"{folder}/init/checkpoints/*/rank-0000.state")
    masters = read_masters(state)
    exact, rounded = (np.array(torch_losses(folder, masters, bf16)) for bf16 in (False, True))
    ours32, ours16 = (np.array(our_losses(folder, d)) for d in ("fp32", "bf16"))
    assert len(ours32) == len(ours16) == STEPS, "a run of ./train did not reach its end"
    for i in (0, 9, 24, 49):
        print(
            f"step {i + 1}: fp32 PyTorch {exact[i]:.6f}, ./train {ours32[i]:.6f}; "
            f"bf16 PyTorch {rounded[i]:.4f}, ./train {ours16[i]:.4f}"
        )
    off32 = np.abs(ours32 - exact).max()
    off16, noise = np.abs(ours16 - exact).mean(), np.abs(rounded - exact).mean()
    print(f"fp32: largest difference {off32:.1e} (at most 1e-4)")
    print(f"bf16: mean distance to fp32 {off16:.1e}, PyTorch's own {noise:.1e}")
    good = off32 <= 1e-4 and off16 <= max(2 * noise, 0.01)
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if len(sys.argv) != 3 or sys.argv[1] not in ("shards", "compare"):
    sys.exit("usage: losses_gpt2_torch.py shards|compare DIR")
sys.exit(write_shards(sys.argv[2]) if sys.argv[1] == "shards" else compare(sys.argv[2]))
