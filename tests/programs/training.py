"""Programs that train: forward, backward, optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.programs import Step, program


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.contract = nn.Linear(4 * width, width)

    def forward(self, hidden: Tensor) -> Tensor:
        batch, length, width = hidden.shape
        parts = self.query_key_value(self.norm_attention(hidden)).chunk(3, dim=-1)
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        widened: Tensor = self.contract(functional.gelu(self.expand(self.norm_mlp(hidden))))
        return hidden + widened


class Transformer(nn.Module):
    """Token ids and targets -> cross-entropy."""

    def __init__(self, width: int = 32, heads: int = 4, layers: int = 1, tokens: int = 50) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.head = nn.Linear(width, tokens)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        hidden = self.embedding(ids)
        for block in self.blocks:
            hidden = block(hidden)
        return functional.cross_entropy(self.head(hidden).flatten(0, 1), targets.flatten())


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def train_step(model: nn.Module, run: Any, inputs: tuple[Tensor, ...]) -> Step:
    def step() -> Any:
        model.zero_grad(set_to_none=True)
        output = run(*inputs)
        output.sum().backward()
        return output.detach(), gradients(model)

    return step


@program(steps=3)
def transformer() -> Step:
    model = Transformer()
    ids, targets = torch.randint(0, 50, (2, 16)), torch.randint(0, 50, (2, 16))
    return train_step(model, torch.compile(model), (ids, targets))


@program()
def conv_bn() -> Step:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    train = train_step(model, torch.compile(model), (torch.randn(2, 3, 8, 8),))

    def step() -> Any:
        return train(), [buffer.clone() for buffer in model.buffers()]

    return step


@program()
def adam() -> Step:
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, foreach=True)

    @torch.compile
    def update() -> None:
        optimizer.step()

    def step() -> Any:
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        update()
        return [parameter.detach().clone() for parameter in model.parameters()]

    return step


@program(fallback_random=True)
def checkpoint_rng() -> Step:
    model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Tanh())

    @torch.compile
    def run(value: Tensor) -> Tensor:
        result: Tensor = checkpoint(model, value, use_reentrant=False)
        return result

    return train_step(model, run, (torch.randn(4, 8, requires_grad=True),))
