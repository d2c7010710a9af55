# GPT-2 in PyTorch as its user would write it for speed (Radford et al. 2019): fp32 weights with
# bf16 autocast, fused AdamW, fused attention, a vocabulary padded to 50304, torch.compile, and on
# several GPUs FSDP2. Loss and clipping are those of ./train. bench_gpt2_torch.py measures it on
# GPUs, bench_torch.py on a CPU; losses_gpt2_torch.py compares its losses with those of ./train.
# (torch_gpt2.py is the same model, as short as it can be written.)
import types

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {  # layers, heads, channels
    "tiny": (4, 4, 128),
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}
VOCAB, PADDED, POSITIONS = 50257, 50304, 1024


class Block(nn.Module):
    def __init__(self, heads, channels):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(channels)
        self.qkv = nn.Linear(channels, 3 * channels)
        self.proj = nn.Linear(channels, channels)
        self.norm2 = nn.LayerNorm(channels)
        self.fc = nn.Linear(channels, 4 * channels)
        self.out = nn.Linear(4 * channels, channels)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).split(c, 2)
        q, k, v = (z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(b, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))


def head_loss(x, norm, weight, targets):
    logits = F.linear(norm(x), weight)
    return F.cross_entropy(logits.view(-1, weight.shape[0]), targets.reshape(-1))


class GPT(nn.Module):
    def __init__(self, layers, heads, channels, vocab=PADDED, positions=POSITIONS):
        super().__init__()
        self.head_loss = head_loss
        self.wte = nn.Embedding(vocab, channels)
        self.wpe = nn.Embedding(positions, channels)
        self.blocks = nn.ModuleList(Block(heads, channels) for _ in range(layers))
        self.norm = nn.LayerNorm(channels)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head_loss(x, self.norm, self.wte.weight, targets)


def make_optimizer(model, lr, **kind):
    groups = [
        {"params": [p for p in model.parameters() if p.dim() == 2], "weight_decay": 0.1},
        {"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0},
    ]
    kind = kind or {"fused": True}
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), eps=1e-8, **kind)


def train_step(loss_of, model, optimizer, tokens, bf16):
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bf16):
        loss = loss_of(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.detach()


def compile_whole(model):
    model.forward = torch.compile(model.forward, dynamic=False, fullgraph=True)


def compile_regions(model):
    """Compiles one block for all of them, since their code and shapes are the same, and the head
    with the loss: so the time to compile does not grow with the layers. It is what PyTorch's users
    do with large models, and the only way together with shard()."""
    block = torch.compile(Block.forward, dynamic=False, fullgraph=True)
    for b in model.blocks:
        b.forward = types.MethodType(block, b)
    model.head_loss = torch.compile(head_loss, dynamic=False, fullgraph=True)


def shard(model, stage):
    """FSDP2: optimizer state, gradients and, at stage 3, weights between uses lie in shards, as in
    ./train --zero 2 and 3. Weights are gathered and gradients reduced in bf16, as there."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # PyTorch 2.6 on

    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy, reshard_after_forward=stage == 3)
    fully_shard(model, mp_policy=policy, reshard_after_forward=False)
