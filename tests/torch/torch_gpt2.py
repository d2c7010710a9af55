# GPT-2 in PyTorch, as short as it can be written (Radford et al. 2019), ten AdamW steps of it, and
# a cross-check with Hugging Face's GPT2LMHeadModel. generate_torch_values.py writes what it
# computes to tests/fixtures/torch/gpt2_step.val. Weights have the names of model/params.h,
# GROUP.PARAMETER; the weight of a linear layer is (out, in), and the rows of qkv are all queries,
# then all keys, then all values.
import numpy as np
import torch
import torch.nn.functional as F

L, V, T, B, C, NH, STEPS = 2, 211, 17, 3, 36, 4, 10


def leaf(x):
    return x.clone().requires_grad_(True)


def gpt_weights():
    """Larger and less regular than GPT-2's initial values: no term of a gradient is negligible."""
    w = {"ends.wte": torch.randn(V, C) * 0.2, "ends.wpe": torch.randn(T, C) * 0.2}
    linears = {
        "attention.qkv": (3 * C, C),
        "attention.proj": (C, C),
        "mlp.fc": (4 * C, C),
        "mlp.out": (C, 4 * C),
    }
    for i in range(L):
        for name, shape in linears.items():
            w[f"block.{i}.{name}.weight"] = torch.randn(*shape) * 0.15
            w[f"block.{i}.{name}.bias"] = torch.randn(shape[0]) * 0.1
    for name in [f"block.{i}.norm{j}" for i in range(L) for j in (1, 2)] + ["ends.norm"]:
        w[name + ".weight"] = 1 + torch.randn(C) * 0.2
        w[name + ".bias"] = torch.randn(C) * 0.2
    return w


def gpt_loss(w, tokens, targets):
    def norm(x, name):
        return F.layer_norm(x, (C,), w[name + ".weight"], w[name + ".bias"], 1e-5)

    def linear(x, name):
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    x = w["ends.wte"][tokens] + w["ends.wpe"]
    mask = torch.ones(T, T).tril().bool()
    for i in range(L):
        qkv = linear(norm(x, f"block.{i}.norm1"), f"block.{i}.attention.qkv")
        q, k, v = (z.view(B, T, NH, C // NH).transpose(1, 2) for z in qkv.split(C, 2))
        scores = (q @ k.transpose(2, 3) / (C // NH) ** 0.5).masked_fill(~mask, -torch.inf)
        mixed = (scores.softmax(3) @ v).transpose(1, 2).reshape(B, T, C)
        x = x + linear(mixed, f"block.{i}.attention.proj")
        fc = linear(norm(x, f"block.{i}.norm2"), f"block.{i}.mlp.fc")
        x = x + linear(F.gelu(fc, approximate="tanh"), f"block.{i}.mlp.out")
    logits = norm(x, "ends.norm") @ w["ends.wte"].T
    return F.cross_entropy(logits.view(B * T, V), targets.reshape(B * T))


def difference(x, y):
    """Largest difference, relative to the largest value."""
    return ((x - y).abs().max() / y.abs().max()).item()


def gpt_run(start, tokens, dtype):
    """Ten steps on tokens (11, B, T + 1). Returns the losses of all eleven batches, the ten norms,
    the first step's gradients and the last weights."""
    w = {name: leaf(x.to(dtype)) for name, x in start.items()}
    decay = [x for x in w.values() if x.dim() == 2]
    rest = [x for x in w.values() if x.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=1e-3,
        betas=(0.9, 0.95),
        eps=1e-8,
    )
    losses, norms, grads = [], [], None
    for batch in tokens:
        loss = gpt_loss(w, batch[:, :-1], batch[:, 1:])
        losses.append(loss.item())
        if len(losses) > STEPS:
            break
        optimizer.zero_grad()
        loss.backward()
        grads = grads or {name: x.grad.clone() for name, x in w.items()}
        norm = torch.cat([x.grad.flatten() for x in w.values()]).norm()
        norms.append(norm.item())
        for x in w.values():
            x.grad *= min(1.0, 1.0 / norm.item())
        optimizer.step()
    return losses, norms, grads, {name: x.detach() for name, x in w.items()}


def check_hugging_face(start, tokens, loss, grads):
    """The same weights in GPT2LMHeadModel must give the same loss and gradients."""
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        print("transformers is not installed: NO cross-check with GPT2LMHeadModel")
        return
    sizes = dict(vocab_size=V, n_positions=T, n_embd=C, n_layer=L, n_head=NH)
    no_dropout = dict(embd_pdrop=0, attn_pdrop=0, resid_pdrop=0)
    config = GPT2Config(activation_function="gelu_new", **sizes, **no_dropout)
    model = GPT2LMHeadModel(config)
    parts = {
        "ends.wte": "wte",
        "ends.wpe": "wpe",
        "ends.norm": "ln_f",
        "block": "h",
        "norm1": "ln_1",
        "norm2": "ln_2",
        "attention.qkv": "attn.c_attn",
        "attention.proj": "attn.c_proj",
        "mlp.fc": "mlp.c_fc",
        "mlp.out": "mlp.c_proj",
    }
    names = {}
    for name in start:
        theirs = name if name.endswith((".weight", ".bias")) else name + ".weight"
        for part, their_part in parts.items():
            theirs = theirs.replace(part, their_part, 1)
        names[name] = "transformer." + theirs
    theirs = dict(model.named_parameters())
    assert sorted(names.values()) == sorted(theirs), "not the same set of weights"

    def transpose(name, x):  # their Conv1D keeps a linear layer's weight as (in, out)
        return x.T if x.dim() == 2 and "block" in name else x

    with torch.no_grad():
        for name, x in start.items():
            theirs[names[name]].copy_(transpose(name, x))
    logits = model(tokens[0][:, :-1]).logits
    their_loss = F.cross_entropy(logits.reshape(B * T, V), tokens[0][:, 1:].reshape(B * T))
    their_loss.backward()
    worst = max(
        difference(transpose(name, theirs[names[name]].grad), grads[name]) for name in start
    )
    error = abs(their_loss.item() / loss - 1)
    print(f"GPT2LMHeadModel: loss {error:.1e}, gradients {worst:.1e} of each largest value")
    assert error < 1e-6 and worst < 5e-6


def gpt(out):
    start = gpt_weights()
    tokens = torch.randint(0, V, (STEPS + 1, B, T + 1))
    losses, norms, grads, weights = gpt_run(start, tokens, torch.float32)
    losses64, norms64, grads64, weights64 = gpt_run(start, tokens, torch.float64)
    worst = max(difference(grads[n], grads64[n]) for n in grads)
    # No key bias moves the loss: its gradient is rounding noise, which AdamW enlarges. Keep none of
    # it.
    for i in range(L):
        for w in (weights, weights64):
            w[f"block.{i}.attention.qkv.bias"][C : 2 * C] = 0
    moved = max(difference(weights[n], weights64[n]) for n in grads)
    error = max(abs(a / b - 1) for a, b in zip(losses, losses64))
    print(f"fp32 against fp64: losses {error:.1e}, gradients {worst:.1e}, last weights {moved:.1e}")
    assert error < 2e-6 and worst < 4e-6
    check_hugging_face(start, tokens, losses[0], grads)
    out.add(
        sizes=[L, V, T, B, C, NH, STEPS],
        inputs=tokens[:, :, :-1],
        targets=tokens[:, :, 1:],
        losses=np.array(losses),
        norms=np.array(norms),
    )
    for name in start:
        out.add_named(name, start[name])
        out.add_named("grad." + name, grads[name])
        out.add_named("last." + name, weights[name])
    print("losses", " ".join(f"{x:.6f}" for x in losses))
