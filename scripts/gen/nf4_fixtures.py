#!/usr/bin/env python3
"""Makes tests/fixtures/nf4/runs.val: what bitsandbytes makes of runs of 16384 weights in NF4.

    PYTHON scripts/gen/nf4_fixtures.py [OUT]

PYTHON has torch and bitsandbytes 0.50, and the CPU is an x86-64. Each run is quantized by
quantize_4bit with blocks of 64 and double quantization, and read back. The weights are made of
integers, by elements() here and element() in tests/kernels/test_kernels_nf4.c, and so are not in
the file. Its format is that of tests/lib/values.h. Of run k, which is a row of KINDS:

  run k       as struct Nf4Run has it (kernels/nf4.h), in items of 16 bits
  back k      checksums of the values that come back, in fp32, bf16 and fp16, four items each
"""

import struct
import sys

import bitsandbytes
import numpy as np
import torch
from bitsandbytes import functional

KINDS = ["normal", "heavy tails", "zeros", "tiny", "far apart", "alike", "ties", "sums"]
RUN, BLOCK = 16384, 64
FORMATS = [torch.float32, torch.bfloat16, torch.float16]


def random_bits(seed, n):
    """rng_bits(seed, 0 .. n - 1) of kernels/dtype.h."""

    def mix(x):
        x ^= x >> np.uint64(30)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(27)
        x *= np.uint64(0x94D049BB133111EB)
        return x ^ x >> np.uint64(31)

    step = np.uint64(0x9E3779B97F4A7C15)
    return mix(mix(np.array([seed], np.uint64) + step) + np.arange(n, dtype=np.uint64) * step)


def elements(kind):
    """The weights of a run: a sum of four uniform integers each, times what its kind says."""
    bits = random_bits(kind, RUN)
    at = np.arange(RUN)
    m = sum(((bits >> np.uint64(16 * k)) & np.uint64(0xFFFF)).astype(np.int32) for k in range(4))
    m = (m - 131070).astype(np.float32)
    name, block = KINDS[kind], at // BLOCK
    if name == "heavy tails":
        return m * m * m * np.float32(2.0**-60)
    if name == "zeros":
        m[(block % 9 == 4) | (at % 1024 >= 992)] = 0
    if name == "tiny":
        return np.ldexp(m, -160 + block % 64)
    if name == "far apart":
        return np.ldexp(m, block % 40 - 30)
    if name == "alike":
        return np.where(m < 0, np.float32(-0.75), np.float32(0.75))
    if name == "ties":  # the midpoints between two values, and their neighbours; absmax is 2^n
        value = functional.get_4bit_type("nf4", "cpu").numpy()
        middle = ((value[:-1] + value[1:]) / 2)[(bits % np.uint64(15)).astype(int)]
        near = (bits >> np.uint64(8)) % np.uint64(3)
        middle = (middle.view(np.int32) + near.astype(np.int32) - 1).view(np.float32)
        return np.ldexp(np.where(at % BLOCK == 0, np.float32(1), middle), block % 16 - 8)
    if name == "sums":  # of absmax, which depend on their order: one column is by far the largest
        return np.ldexp(m, np.where(block % 32 == 0, 0, -24))
    return np.ldexp(m, -20)


def checksum(array):
    """The sum of the items' bits, each times its odd number, modulo 2^64; four items of 16 bits."""
    bits = array.view(np.uint32 if array.dtype == np.float32 else np.uint16).astype(np.uint64)
    number = 2 * np.arange(bits.size, dtype=np.uint64) + np.uint64(1)
    return np.array([(bits * number).sum(dtype=np.uint64)]).view(np.uint16)


def rounded(x, dtype):
    x = torch.from_numpy(x).to(dtype)
    return (x if dtype != torch.bfloat16 else x.view(torch.int16)).numpy()


def quantized(x):
    """The bytes of a run, and its values in fp32."""
    code, state = functional.quantize_4bit(
        torch.from_numpy(x), blocksize=BLOCK, quant_type="nf4", compress_statistics=True
    )
    parts = [code, state.absmax, state.state2.absmax, state.offset]
    run = b"".join(part.contiguous().numpy().tobytes() for part in parts)
    assert len(run) == RUN // 2 + RUN // BLOCK + 8
    back = functional.dequantize_4bit(code, state).numpy() + np.float32(0)  # no -0
    return run, back


def add(file, name, array):
    """Adds an array of 16-bit items, as tests/lib/values.c reads it."""
    body = np.ascontiguousarray(array).tobytes()
    file.write(struct.pack("<40sII4I", name.encode(), 2, 1, array.size, 1, 1, 1))
    file.write(body + b"\0" * (-len(body) % 8))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/fixtures/nf4/runs.val"
    assert bitsandbytes.__version__.startswith("0.50"), bitsandbytes.__version__
    with open(out, "wb") as f:
        f.write(b"ZVALUES1")
        for kind in range(len(KINDS)):
            run, back = quantized(elements(kind))
            add(f, f"run {kind}", np.frombuffer(run, dtype=np.uint16))
            add(f, f"back {kind}", np.concatenate([checksum(rounded(back, d)) for d in FORMATS]))


if __name__ == "__main__":
    main()
