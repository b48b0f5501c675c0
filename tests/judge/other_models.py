"""Further models into which faults are planted. Two parts of the rule were mended on three innocent kernels in them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.judge.models import Build

OTHER_MODELS: dict[str, Build] = {}


def model(build: Build) -> Build:
    OTHER_MODELS[build.__name__] = build
    return build


class Block(nn.Module):
    """A block of a transformer whose attention is PyTorch's own, with a mean of squares for a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(36) + 0.5)
        self.qkv, self.out = nn.Linear(36, 108, bias=False), nn.Linear(36, 36)

    def forward(self, x: Tensor) -> Tensor:
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight
        q, k, v = (one.unflatten(-1, (3, 12)).transpose(1, 2) for one in self.qkv(y).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2)
        return x + F.elu(self.out(seen))


@model
def block() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Block(), (torch.randn(2, 18, 36),)


class Normalized(nn.Module):
    """Convolutions with batch norms, of which one is in the branch of a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.Conv2d(12, 12, 3, padding=1, groups=3)
        self.norm, self.other = nn.BatchNorm2d(12), nn.BatchNorm2d(12)
        self.head = nn.Linear(12, 7)

    def forward(self, x: Tensor) -> Tensor:
        y = F.hardswish(self.norm(self.first(x)))
        out: Tensor = self.head(F.max_pool2d(y + self.other(self.second(y)), 2).mean((2, 3)))
        return out


@model
def normalized() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Normalized(), (torch.randn(3, 3, 16, 16),)


class Chosen(nn.Module):
    """Chooses rows by their scores, as a router of experts does."""

    def __init__(self) -> None:
        super().__init__()
        self.score, self.table = nn.Linear(28, 9), nn.Parameter(torch.randn(9, 28))

    def forward(self, x: Tensor) -> Tensor:
        weights, chosen = self.score(x).softmax(-1).topk(2, -1)
        rows = self.table[chosen] * weights[..., None]
        joined = torch.cat([rows.sum(1), x.roll(1, 0)], 1)
        return joined * torch.sigmoid(joined.std(0)) + joined.abs().amax(1, keepdim=True)


@model
def chosen() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Chosen(), (torch.randn(22, 28),)


class Distances(nn.Module):
    """Compares points with learned centers, and sums over pairs."""

    def __init__(self) -> None:
        super().__init__()
        self.centers, self.width = nn.Parameter(torch.randn(11, 6)), nn.Parameter(torch.rand(11) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        squares = (x[:, None] - self.centers).square().sum(-1)
        near = torch.exp(-squares / self.width) + 1e-3
        return torch.logsumexp(near @ self.centers, 1) - near.log().mean(1) + squares.cumsum(0).sqrt().sum(1)


@model
def distances() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Distances(), (torch.randn(26, 6),)
