"""The program that `stepscope demo` records: the training of a transformer block, with one step that overflows in fp16.

The attention scores are computed in float16. In step 2 the input is large: the scores exceed float16's maximum,
65,504, and become infinite, softmax turns them into NaN, and NaN spreads through the block. The same happens in a real
model whose activations have grown.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

STEPS = 4
OVERFLOW_STEP = 2
OVERFLOW_SCALE = 300.0


class TransformerBlock(nn.Module):
    """A pre-norm transformer block, [batch, time, width] -> [batch, time, width]."""

    def __init__(self, width: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.input_projection = nn.Linear(width, 3 * width)
        self.output_projection = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def attention(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        query, key, value = self.input_projection(x).half().chunk(3, dim=-1)
        query, key, value = (t.view(batch, time, self.heads, -1).transpose(1, 2) for t in (query, key, value))
        scores = query @ key.transpose(-1, -2)
        weights: Tensor = (scores * (width // self.heads) ** -0.5).softmax(dim=-1)
        mixed: Tensor = (weights @ value).transpose(1, 2).reshape(batch, time, width)
        return mixed.float()

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.output_projection(self.attention(x))
        hidden = functional.gelu(self.widen(self.norm(x)))
        out: Tensor = x + self.narrow(hidden)
        return out


def main() -> None:
    torch.manual_seed(0)
    model = TransformerBlock()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    target = torch.randn(4, 32, 64)
    for step in range(STEPS):
        x = torch.randn(4, 32, 64) * (OVERFLOW_SCALE if step == OVERFLOW_STEP else 1.0)
        optimizer.zero_grad()
        loss = functional.mse_loss(compiled(x), target)
        loss.backward()  # type: ignore[no-untyped-call]
        if loss.isfinite():
            optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")  # noqa: T201


if __name__ == "__main__":
    main()
