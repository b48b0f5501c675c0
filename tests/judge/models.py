"""Models into which faults are planted. The thresholds of the judge were set on `tests.programs`, not on these."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Build = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
MODELS: dict[str, Build] = {}


def model(build: Build) -> Build:
    MODELS[build.__name__] = build
    return build


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + self.layers(x)
        return out


@model
def mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Residual(nn.LayerNorm(48), nn.Linear(48, 64), nn.GELU(), nn.Linear(64, 48)), (torch.randn(24, 48),)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        scores = (q @ k.transpose(-1, -2) * 0.17).masked_fill(hidden, float("-inf"))
        out: Tensor = torch.relu(scores.softmax(-1) @ v) * 1.5
        return out


@model
def attention() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Attention(), (torch.randn(3, 20, 32),)


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(40) + 0.5)
        self.gate, self.up, self.down = nn.Linear(40, 56), nn.Linear(40, 56), nn.Linear(56, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5).to(x.dtype) * self.weight
        out: Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


@model
def gated() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Gated(), (torch.randn(20, 40),)


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 24), nn.Linear(24, 50)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.cross_entropy(self.head(torch.tanh(self.table(tokens[:, :-1]))).flatten(0, 1), tokens[:, 1:].flatten())


@model
def classifier() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Classifier(), (torch.randint(0, 50, (6, 15)),)


@model
def convolution() -> tuple[nn.Module, tuple[Tensor, ...]]:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(8, 4, 1)
    return nn.Sequential(*layers), (torch.randn(4, 3, 12, 12),)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x, self.h = nn.Linear(16, 72), nn.Linear(24, 72)

    def forward(self, sequence: Tensor) -> Tensor:
        h = sequence.new_zeros(sequence.shape[1], 24)
        for x in sequence:
            r, z, n = self.x(x).chunk(3, -1)
            hr, hz, hn = self.h(h).chunk(3, -1)
            z = torch.sigmoid(z + hz)
            h = (1 - z) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + z * h
        return h


@model
def recurrent() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Recurrent(), (torch.randn(2, 12, 16),)


class Losses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(64) + 0.5)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = x * self.scale
        huber = F.smooth_l1_loss(z, y)
        smooth = torch.log1p(z.abs()).sum(-1).mean() + F.softplus(z).mean()
        return huber + smooth + torch.clamp(z, -1, 1).square().sum(0).max()


@model
def losses() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Losses(), (torch.randn(32, 64), torch.randn(32, 64))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(32, 32, bias=False), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([self.a(x), torch.flip(x, [0]), x.cumsum(0) * 0.1], -1)
        best = joined.view(x.shape[0], 3, 32).amax(1)
        return F.dropout(F.leaky_relu(self.b(best)), 0.2) - best.mean(-1, keepdim=True)


@model
def mixed() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Mixed(), (torch.randn(16, 32),)
