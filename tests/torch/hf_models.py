# Models with random weights, as transformers build them from the shapes that are published.
# bench_torch.py trains them.
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


def build(model, **how):
    name, sizes = MODELS[model]
    torch.manual_seed(1)
    config = getattr(transformers, name)(tie_word_embeddings=True, **sizes)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32, **how)
