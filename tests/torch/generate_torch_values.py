# Writes the values of PyTorch that the tests hold this program against.
#
#   python3 tests/torch/generate_torch_values.py
#
# needs torch and numpy (and transformers, for a cross-check) and writes kernels.val and
# gpt2_step.val of tests/fixtures/torch. Both are committed: the tests themselves need no Python.
# tests/lib/values.c reads the files. Their format: 8 bytes "ZVALUES1", then arrays until the end of
# the file. An array is a header of 64 bytes
#   name, 40 bytes padded with 0
#   uint32 type: 0 float32, 1 int32, 2 uint16
#   uint32 number of dimensions, uint32 dimensions[4] (unused ones are 1)
# and its elements, little-endian, padded with 0 to a multiple of 8 bytes.
#
# kernels.val: PyTorch in fp64, from inputs that are exact in bf16, so that one set of results holds
# for both dtypes. gpt2_step.val (torch_gpt2.py): a training run in fp32, as a user of PyTorch would
# write it, and the same in fp64, which bounds the error of the fp32 values themselves.
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F

import torch_gpt2

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fixtures", "torch")
TYPES = {"float32": 0, "int32": 1, "uint16": 2}


class Values:
    """A values file being written."""

    def __init__(self, name):
        self.path = os.path.join(DATA, name)
        self.file = open(self.path, "wb")
        self.file.write(b"ZVALUES1")

    def add(self, **arrays):
        for name, array in arrays.items():
            self.add_named(name, array)

    def add_named(self, name, array):
        if isinstance(array, torch.Tensor):
            array = array.detach().numpy()
        array = np.asarray(array)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        if array.dtype == np.int64:
            array = array.astype(np.int32)
        dims = list(array.shape) or [1]
        text = name.encode()
        assert len(text) < 40 and len(dims) <= 4, name
        head = struct.pack(
            "<40sII4I", text, TYPES[array.dtype.name], len(dims), *(dims + [1] * (4 - len(dims)))
        )
        body = np.ascontiguousarray(array).tobytes()
        self.file.write(head + body + b"\0" * (-len(body) % 8))

    def close(self):
        self.file.close()
        print(self.path, os.path.getsize(self.path), "bytes")


def draw(*shape, scale=1.0):
    """Normal values rounded to bf16, as fp64."""
    return (torch.randn(*shape) * scale).bfloat16().double()


def grid(*shape):
    """Multiples of 1/32 below 2: exact in bf16, and so is the sum of two."""
    return torch.randint(-63, 64, shape).double() / 32


def leaf(x):
    return x.clone().requires_grad_(True)


# The counter-based generator of kernels/dtype.h, on arrays.
def rng_mix(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def rng_bits(seed, n):
    gamma = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        base = rng_mix(np.array([seed], np.uint64) + gamma)
        return rng_mix(base + np.arange(n, dtype=np.uint64) * gamma)


def rng_uniform(seed, n):
    return (rng_bits(seed, n) >> np.uint64(40)).astype(np.float64) * 2.0**-24


def rng_normal(seed, n):
    bits = rng_bits(seed, n)
    u = ((bits >> np.uint64(40)).astype(np.float64) + 1) * 2.0**-24
    v = (bits & np.uint64(0xFFFFFF)).astype(np.float64) * 2.0**-24
    return np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)


def linear_and_gelu(out):
    """Y = X W^T + b, H = GELU(Y), loss = sum(H * r); X (17, 29), W (36, 29)."""
    x, w, b, r = leaf(draw(17, 29)), leaf(draw(36, 29, scale=0.2)), leaf(draw(36)), draw(17, 36)
    y = F.linear(x, w, b)
    y.retain_grad()
    h = F.gelu(y, approximate="tanh")
    (h * r).sum().backward()
    out.add(
        linear_x=x,
        linear_w=w,
        linear_b=b,
        linear_y=y,
        linear_h=h,
        linear_dh=r,
        linear_dy=y.grad,
        linear_dx=x.grad,
        linear_dw=w.grad,
        linear_db=b.grad,
    )
    # The same backward pass from an upstream gradient that is exact in bf16.
    x, w, b, dy = leaf(x.detach()), leaf(w.detach()), leaf(b.detach()), draw(17, 36)
    F.linear(x, w, b).backward(dy)
    out.add(linear2_dy=dy, linear2_dx=x.grad, linear2_dw=w.grad, linear2_db=b.grad)
    special = torch.tensor([0.0, -0.0, 1e-3, -1e-3, 50, -50, 1e4, -1e4])
    x = leaf(torch.cat([torch.linspace(-12, 12, 193), special]).bfloat16().double())
    y = F.gelu(x, approximate="tanh")
    y.sum().backward()
    out.add(gelu_x=x, gelu_y=y, gelu_slope=x.grad)


def norm(out):
    """Residual and layer norm, (34, 36); dx gets the gradient that flows past the norm added."""
    x, delta, past, dy = grid(34, 36), grid(34, 36), draw(34, 36), draw(34, 36)
    s, w, b = leaf(x + delta), leaf(1 + draw(36, scale=0.25)), leaf(draw(36))
    w = leaf(w.detach().bfloat16().double())
    y = F.layer_norm(s, (36,), w, b, 1e-5)
    y.backward(dy)
    mean = s.mean(1)
    rstd = 1 / torch.sqrt(s.var(1, unbiased=False) + 1e-5)
    out.add(
        norm_x=x,
        norm_delta=delta,
        norm_sum=s,
        norm_weight=w,
        norm_bias=b,
        norm_y=y,
        norm_mean=mean,
        norm_rstd=rstd,
        norm_dy=dy,
        norm_past=past,
        norm_dx=s.grad + past,
        norm_dweight=w.grad,
        norm_dbias=b.grad,
    )


def rms_norm(out):
    """RMS norm without a bias, (34, 36), eps 1e-6, of the sums that norm() has."""
    s, dy, past = leaf(grid(34, 36) + grid(34, 36)), draw(34, 36), draw(34, 36)
    w = leaf((1 + draw(36, scale=0.25)).bfloat16().double())
    y = F.rms_norm(s, (36,), w, 1e-6)
    y.backward(dy)
    out.add(
        rms_x=s,
        rms_weight=w,
        rms_y=y,
        rms_rstd=1 / torch.sqrt((s * s).mean(1) + 1e-6),
        rms_dy=dy,
        rms_past=past,
        rms_dx=s.grad + past,
        rms_dweight=w.grad,
    )


def swiglu(out):
    """silu(g) u, (17, 36), of rows [g | u]."""
    x, dy = leaf(draw(17, 72, scale=2.0)), draw(17, 36)
    g, u = x.split(36, 1)
    y = F.silu(g) * u
    y.backward(dy)
    out.add(swiglu_x=x, swiglu_y=y, swiglu_dy=dy, swiglu_dx=x.grad)


def rotate(out):
    """Rotary embedding, B 2, T 5, NH 4, NKV 2, HS 10, as Hugging Face's Llama and Qwen3 have it:
    cat(-second half, first half) times sin. First without norms, then behind those of a head."""
    b, t, nh, nkv, hs = 2, 5, 4, 2, 10
    angles = torch.outer(torch.arange(t), 10000.0 ** (-torch.arange(0, hs, 2) / hs)).float()
    table = torch.stack((angles.cos(), angles.sin()), 2)
    cos, sin = (torch.cat((z, z), 1)[:, None].double() for z in table.unbind(2))
    x, dy = leaf(draw(b, t, nh + 2 * nkv, hs)), draw(b, t, nh + 2 * nkv, hs)
    wq, wk = (leaf((1 + draw(hs, scale=0.25)).bfloat16().double()) for _ in range(2))

    def turn(z):
        first, second = z.chunk(2, 3)
        return z * cos + torch.cat((-second, first), 3) * sin

    q, k, v = x.split((nh, nkv, nkv), 2)
    y = torch.cat((turn(q), turn(k), v), 2)
    (plain_dx,) = torch.autograd.grad(y, x, dy, retain_graph=True)
    q, k = F.rms_norm(q, (hs,), wq, 1e-6), F.rms_norm(k, (hs,), wk, 1e-6)
    normed = torch.cat((turn(q), turn(k), v), 2)
    normed.backward(dy)
    out.add(
        rotate_table=table,
        rotate_x=x,
        rotate_dy=dy,
        rotate_y=y,
        rotate_dx=plain_dx,
        rotate_q_norm=wq,
        rotate_k_norm=wk,
        rotate_normed_y=normed,
        rotate_normed_dx=x.grad,
        rotate_dq_norm=wq.grad,
        rotate_dk_norm=wk.grad,
    )


def attention(out):
    """Causal attention, B 2, T 17, NH 4, HS 9."""
    b, t, nh, hs = 2, 17, 4, 9
    qkv, dout = leaf(draw(b, t, 3 * nh * hs)), draw(b, t, nh * hs)
    q, k, v = (z.view(b, t, nh, hs).transpose(1, 2) for z in qkv.split(nh * hs, 2))
    o = (
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
        .transpose(1, 2)
        .reshape(b, t, nh * hs)
    )
    o.backward(dout)
    scores = (q @ k.transpose(2, 3) / hs**0.5).masked_fill(
        ~torch.ones(t, t).tril().bool(), -torch.inf
    )
    out.add(
        attention_qkv=qkv,
        attention_out=o,
        attention_lse=torch.logsumexp(scores, 3),
        attention_dout=dout,
        attention_dqkv=qkv.grad,
    )


def embed(out):
    """wte (50, 36) + wpe (17, 36) for tokens (3, 17), most of which occur several times."""
    tokens = torch.randint(0, 12, (3, 17)) * 4
    wte, wpe, dout = leaf(grid(50, 36)), leaf(grid(17, 36)), draw(3, 17, 36)
    o = F.embedding(tokens, wte) + wpe
    o.backward(dout)
    out.add(
        embed_tokens=tokens,
        embed_wte=wte,
        embed_wpe=wpe,
        embed_out=o,
        embed_dout=dout,
        embed_dwte=wte.grad,
        embed_dwpe=wpe.grad,
    )


def classifier(out):
    """Mean cross entropy of 5 rows of 211 logits, and of 2 rows of 50257 made by rng_uniform."""
    logits, targets = leaf(draw(5, 211, scale=3)), torch.randint(0, 211, (5,))
    F.cross_entropy(logits, targets).backward()
    out.add(
        classifier_logits=logits,
        classifier_targets=targets,
        classifier_dlogits=logits.grad,
        classifier_loss=F.cross_entropy(logits, targets, reduction="none"),
    )
    big = torch.from_numpy(16 * rng_uniform(7, 2 * 50257) - 8).bfloat16().double()
    big, targets = leaf(big.view(2, 50257)), torch.tensor([50256, 3])
    F.cross_entropy(big, targets).backward()
    columns = torch.cat([torch.arange(0, 50257, 787), targets])
    out.add(
        big_targets=targets,
        big_loss=F.cross_entropy(big, targets, reduction="none"),
        big_columns=columns,
        big_dlogits=big.grad[:, columns],
    )


def adamw(out):
    """Three steps of clip and AdamW on 60 weights that decay and 40 that do not."""
    weights = [leaf(draw(60)), leaf(draw(40))]
    optimizer = torch.optim.AdamW(
        [
            {"params": weights[:1], "weight_decay": 0.1},
            {"params": weights[1:], "weight_decay": 0.0},
        ],
        lr=1e-2,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    out.add(adamw_start=torch.cat(weights))
    grads, norms, results = [], [], []
    for step in range(3):
        for w in weights:
            w.grad = draw(w.numel(), scale=[1, 0.05, 2][step])
        grads.append(torch.cat([w.grad for w in weights]).clone())
        norms.append(grads[-1].norm())
        for w in weights:
            w.grad *= min(1.0, 1.0 / norms[-1].item())
        optimizer.step()
        results.append(torch.cat(weights).detach().clone())
    moments = {
        name: torch.cat([optimizer.state[w][name] for w in weights])
        for name in ("exp_avg", "exp_avg_sq")
    }
    out.add(
        adamw_grads=torch.stack(grads),
        adamw_norms=torch.stack(norms),
        adamw_weights=torch.stack(results),
        adamw_m=moments["exp_avg"],
        adamw_v=moments["exp_avg_sq"],
    )


def bf16(out):
    """fp32 bit patterns and what PyTorch rounds them to; the generator's normal values."""
    special = [
        0,
        1,
        0x7FFF,
        0x8000,
        0x8001,
        0xFFFF,
        0x10000,
        0x18000,
        0x28000,
        0x7FFFFF,
        0x800000,
        0x3F808000,
        0x3F818000,
        0x3F807FFF,
        0x3F808001,
        0x7F7FFFFF,
        0x7F7F7FFF,
        0x7F7F8000,
        0x7F800000,
        0x7F800001,
        0x7FC00000,
        0x7FFFFFFF,
    ]
    bits = np.array(special + [x | 0x80000000 for x in special], np.uint32)
    bits = np.concatenate([bits, np.random.default_rng(5).integers(0, 2**32, 2000, np.uint32)])
    rounded = torch.from_numpy(bits.view(np.float32).copy()).bfloat16()
    out.add(
        bf16_f32=bits.view(np.float32),
        bf16_bits=rounded.view(torch.uint16).numpy(),
        normal_values=rng_normal(1234, 1000),
    )


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print("torch", torch.__version__)
    out = Values("kernels.val")
    for write in (linear_and_gelu, norm, attention, embed, classifier, adamw, bf16):
        write(out)
    for write in (rms_norm, swiglu, rotate):  # the values above stay as they are
        write(out)
    out.close()
    out = Values("gpt2_step.val")
    torch_gpt2.gpt(out)
    out.close()


main()
