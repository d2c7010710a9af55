#!/usr/bin/env python3
"""What scripts/dev/hf_models.sh asks of PyTorch and transformers, one thing at a time:

  hf_models.py make MODEL FOLDER         a folder of that shape with random weights, in fp32
  hf_models.py data FOLDER STEPS T       token shards of one sequence each, val.bin, and `ids`
  hf_models.py loop FOLDER DATA STEPS LR DTYPE    trains, and prints the loss before each step
  hf_models.py logits FOLDER IDS FILE    the distance of FILE's logits from transformers' in fp32,
                                         in parts of the largest

The loop is the usual one: fp32 weights, autocast where DTYPE is bf16, cross entropy, clipping to a
norm of 1, AdamW with decay of matrices alone. Its moments lie in files, which the system may put
aside, so that a model of 1.2 billion parameters trains in 24 GiB.
"""

import sys
import tempfile

import torch
import transformers
from transformers import AutoModelForCausalLM

LLAMA32_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
                "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192}
# Shapes as the models' published config.json has them.
MODELS = {
    "smollm2-135m": ("LlamaConfig", {
        "vocab_size": 49152, "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}}),
    "qwen2.5-0.5b": ("Qwen2Config", {
        "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0}}),
    "llama3.2-1b": ("LlamaConfig", {
        "vocab_size": 128256, "hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_parameters": LLAMA32_ROPE}),
}
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
IDS = 4000  # so many ids are met, and their frequencies are what is learned first


def build(model, **how):
    name, sizes = MODELS[model]
    torch.manual_seed(1)
    config = getattr(transformers, name)(tie_word_embeddings=True, **sizes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, **how)


def make(model, folder):
    build(model).save_pretrained(folder)


def write_shard(path, ids):
    header = torch.zeros(256, dtype=torch.int32)
    header[0], header[1], header[2] = 20240520, 1, len(ids)
    with open(path, "wb") as file:
        file.write(header.numpy().tobytes())
        file.write(ids.to(torch.uint16).numpy().tobytes())


def data(folder, steps, tokens):
    """A shard has one sequence, and an epoch takes shards in order: the order is known."""
    generator = torch.Generator().manual_seed(2)
    steps, tokens = int(steps), int(tokens)
    share = 1.0 / torch.arange(1, IDS + 1, dtype=torch.float64)
    ids = torch.multinomial(share, (steps + 1) * (tokens + 1), True, generator=generator)
    for i, row in enumerate(ids.view(steps + 1, tokens + 1)):
        write_shard(f"{folder}/{'val' if i == steps else f'step-{i:03d}'}.bin", row)
    with open(f"{folder}/ids", "wb") as file:
        file.write(ids[:32].to(torch.int32).numpy().tobytes())


def read_shard(path):
    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()[1024:]), dtype=torch.uint16).long()


class Optimizer:
    """AdamW, one parameter at a time."""

    def __init__(self, model, lr, folder):
        self.params = list(model.parameters())
        self.lr, self.step = lr, 0
        self.moments = [[torch.from_file(f"{folder}/{name}{i}", shared=True, size=p.numel())
                         .view(p.shape) for name in "mv"] for i, p in enumerate(self.params)]

    @torch.no_grad()
    def update(self):
        self.step += 1
        norm = torch.nn.utils.clip_grad_norm_(self.params, CLIP, foreach=False)
        correct = [1 - beta ** self.step for beta in BETAS]
        for p, (m, v) in zip(self.params, self.moments):
            m.lerp_(p.grad, 1 - BETAS[0])
            v.mul_(BETAS[1]).addcmul_(p.grad, p.grad, value=1 - BETAS[1])
            p.grad = None
            if p.dim() == 2:
                p.mul_(1 - self.lr * DECAY)
            p.addcdiv_(m, (v / correct[1]).sqrt_().add_(EPS), value=-self.lr / correct[0])
        return norm


def loop(folder, where, steps, lr, dtype):
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa").train()
    with tempfile.TemporaryDirectory(dir=where) as moments:
        optimizer = Optimizer(model, float(lr), moments)
        for step in range(int(steps)):
            ids = read_shard(f"{where}/step-{step:03d}.bin")
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bf16"):
                logits = model(ids[None, :-1], use_cache=False).logits[0]
            loss = torch.nn.functional.cross_entropy(logits.float(), ids[1:])
            loss.backward()
            del logits
            norm = optimizer.update()
            print(f"{step + 1} {loss.item():.6f} {norm.item():.5f}", flush=True)


@torch.no_grad()
def logits(folder, ids, ours):
    model, told = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", output_loading_info=True)
    if told["missing_keys"] or told["unexpected_keys"] or told["mismatched_keys"]:
        sys.exit(f"{folder}: transformers say {told}")
    with open(ids, "rb") as file:
        row = torch.frombuffer(bytearray(file.read()), dtype=torch.int32).long()
    want = model.eval()(row[None], use_cache=False).logits[0]
    got = torch.from_file(ours, size=want.numel()).view(want.shape)
    print(f"{((got - want).abs().max() / want.abs().max()).item():.3g}")


if __name__ == "__main__":
    transformers.utils.logging.disable_progress_bar()
    {"make": make, "data": data, "loop": loop, "logits": logits}[sys.argv[1]](*sys.argv[2:])
