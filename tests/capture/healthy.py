"""Training runs in which nothing goes wrong: a trace of one has no finding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from stepscope.tracer.demo import TransformerBlock

STEPS = 3


def train(model: nn.Module, batch: Callable[[], tuple[Tensor, ...]]) -> None:
    """`model` gives a tensor whose mean square is the loss."""
    torch.manual_seed(0)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        compiled(*batch()).square().mean().backward()
        optimizer.step()


def demo() -> None:
    """The demo's model without its overflow."""
    train(TransformerBlock(), lambda: (torch.randn(4, 32, 64),))


def masked_attention() -> None:
    """Masks of -inf, added, filled in, chosen and handed to torch's own attention."""
    pad = torch.zeros(2, 8, dtype=torch.bool)
    pad[:, 6:] = True
    train(Masked(), lambda: (torch.randn(2, 8, 16), pad))


def dropout() -> None:
    """The layers of a GPT."""
    train(Gpt(), lambda: (torch.randint(0, 32, (2, 8)),))


class Masked(nn.Module):
    def __init__(self, width: int = 16, time: int = 8) -> None:
        super().__init__()
        self.projection = nn.Linear(width, 3 * width)
        self.register_buffer("mask", torch.triu(torch.full((time, time), -torch.inf), 1))

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        time = x.shape[1]
        lower = torch.ones(time, time, dtype=torch.bool).tril()
        query, key, value = self.projection(x).chunk(3, dim=-1)
        scores = query @ key.transpose(-1, -2) + self.mask
        scores = torch.where(lower, scores.masked_fill(pad[:, None], -torch.inf), -torch.inf)
        bias = torch.zeros(time, time).masked_fill(~lower, -torch.inf)
        mixed = scores.softmax(dim=-1) @ value
        mixed = mixed + functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        out: Tensor = mixed + functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return out


class Gpt(nn.Module):
    def __init__(self, words: int = 32, width: int = 16, time: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(time, width)
        self.first, self.second, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.projection, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.drop = nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        batch, time = ids.shape
        x = self.drop(self.words(ids) + self.places(torch.arange(time)))
        query, key, value = (
            part.view(batch, time, self.heads, -1).transpose(1, 2)
            for part in self.projection(self.first(x)).chunk(3, dim=-1)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, dropout_p=0.1)
        x = x + self.drop(self.mix(mixed.transpose(1, 2).flatten(2)))
        x = x + self.drop(self.down(functional.gelu(self.up(self.second(x)))))
        loss = functional.cross_entropy(self.head(self.last(x))[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        return loss.sqrt()
