#!/usr/bin/env python3
"""Writes a model of random weights as Hugging Face has it, to see what a large one takes.

  scripts/dev/random_model.py llama3.2-1b DIR      2.5 GB
  scripts/dev/random_model.py llama3.1-8b DIR      16 GB

DIR gets config.json and model.safetensors: bf16, about 0.01 in size, norms 1. No tokenizer: give
--tokenizer byte. Needs numpy.
"""
import json
import pathlib
import sys

import numpy

SIZES = {  # layers, channels, heads, key heads, the MLP's width; are the ends tied?
    "llama3.2-1b": (16, 2048, 32, 8, 8192, True),
    "llama3.1-8b": (32, 4096, 32, 8, 14336, False),
}
VOCAB = 128256
CHUNK = 1 << 24


def tensors_of(layers, channels, heads, key_heads, width, tied):
    head = channels // heads
    yield "model.embed_tokens.weight", (VOCAB, channels)
    for i in range(layers):
        at = f"model.layers.{i}."
        yield at + "input_layernorm.weight", (channels,)
        yield at + "self_attn.q_proj.weight", (channels, channels)
        yield at + "self_attn.k_proj.weight", (key_heads * head, channels)
        yield at + "self_attn.v_proj.weight", (key_heads * head, channels)
        yield at + "self_attn.o_proj.weight", (channels, channels)
        yield at + "post_attention_layernorm.weight", (channels,)
        yield at + "mlp.gate_proj.weight", (width, channels)
        yield at + "mlp.up_proj.weight", (width, channels)
        yield at + "mlp.down_proj.weight", (channels, width)
    yield "model.norm.weight", (channels,)
    if not tied:
        yield "lm_head.weight", (VOCAB, channels)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in SIZES:
        sys.exit(__doc__)
    size, folder = SIZES[sys.argv[1]], pathlib.Path(sys.argv[2])
    layers, channels, heads, key_heads, width, tied = size
    folder.mkdir(parents=True)
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu",
        "vocab_size": VOCAB, "hidden_size": channels, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": key_heads,
        "intermediate_size": width, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0, "tie_word_embeddings": tied, "torch_dtype": "bfloat16",
        "rope_scaling": {"rope_type": "llama3", "factor": 32.0 if tied else 8.0,
                         "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                         "original_max_position_embeddings": 8192},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    header, at = {}, 0
    for name, shape in tensors_of(*size):
        bytes_ = 2 * int(numpy.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes_]}
        at += bytes_
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    random = numpy.random.default_rng(1)
    with open(folder / "model.safetensors", "xb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name, shape in tensors_of(*size):
            count = int(numpy.prod(shape))
            for begin in range(0, count, CHUNK):
                n = min(CHUNK, count - begin)
                if "norm" in name:
                    part = numpy.full(n, 0x3F80, numpy.uint16)
                else:  # a random sign and fraction, the exponent of 1/128 to 1/64
                    bits = numpy.frombuffer(random.bytes(2 * n), numpy.uint16)
                    part = (bits & 0x807F) | 0x3C00
                out.write(part.astype("<u2").tobytes())


main()
