"""transformers' generate() with a compiled forward and a static cache: each call of it is one iteration."""

from __future__ import annotations

import torch
from transformers import LlamaConfig, LlamaForCausalLM

CALLS = 3


def main() -> None:
    torch.manual_seed(0)
    size = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=128, num_key_value_heads=4, max_position_embeddings=64, **size)
    model = LlamaForCausalLM(config).eval()
    model.forward = torch.compile(model.forward)
    wanted = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static", "pad_token_id": 0}
    for call in range(CALLS):
        prompt = torch.randint(1, 128, (2, 6))
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), **wanted)
        print(f"TOKENS {call} {made[:, 6:].tolist()}")
    print(f"ITERATIONS {CALLS}")


if __name__ == "__main__":
    main()
