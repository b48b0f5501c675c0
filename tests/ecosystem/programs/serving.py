"""A server of a small decoder: warm-up with each bucket of batch sizes, then requests that are padded to a bucket.

One compiled model serves each bucket with its own shapes; another is compiled once with a dynamic number of tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch

BUCKETS = (8, 4, 2, 1)
REQUESTS = (3, 1, 4, 7, 2, 5, 8, 1)


class Decoder(torch.nn.Module):
    """One block with a cache of keys and values that is written in place."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(64, 32)
        self.attention = torch.nn.Linear(32, 96)
        self.out = torch.nn.Linear(32, 64)
        self.cache = torch.nn.Buffer(torch.zeros(2, 8, 16, 32))

    def forward(self, tokens: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        batch = tokens.shape[0]
        query, key, value = self.attention(self.tokens(tokens)).chunk(3, -1)
        self.cache[0, :batch].index_copy_(1, position, key)
        self.cache[1, :batch].index_copy_(1, position, value)
        seen = torch.arange(16) <= position[:, None]
        mixed = torch.nn.functional.scaled_dot_product_attention(
            query, self.cache[0, :batch], self.cache[1, :batch], attn_mask=seen
        )
        logits: torch.Tensor = self.out(mixed[:, -1])
        return logits


def main() -> None:
    torch.manual_seed(0)
    model = Decoder().eval()
    prefill = torch.compile(model, dynamic=True)
    decode: dict[int, Callable[..., torch.Tensor]] = {}
    calls = 0
    with torch.inference_mode():
        for bucket in BUCKETS:
            decode[bucket] = torch.compile(model.forward, dynamic=False)
            decode[bucket](torch.zeros(bucket, 1, dtype=torch.long), torch.tensor([0]))
            calls += 1
        for length in (2, 5):
            prefill(torch.zeros(4, length, dtype=torch.long), torch.arange(length))
            calls += 1
        answers = []
        for number, size in enumerate(REQUESTS):
            bucket = min(bucket for bucket in BUCKETS if bucket >= size)
            prompt = torch.randint(0, 64, (bucket, 2 + number % 4))
            token = prefill(prompt, torch.arange(prompt.shape[1])).argmax(-1, keepdim=True)
            calls += 1
            for position in range(prompt.shape[1], prompt.shape[1] + 3):
                token = decode[bucket](token, torch.tensor([position])).argmax(-1, keepdim=True)
                calls += 1
            answers.append(token[:size].flatten().tolist())
    print(f"ANSWERS {answers}")
    print(f"ITERATIONS {calls}")


if __name__ == "__main__":
    main()
