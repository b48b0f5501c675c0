"""Moves numbers by what rounding may do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Move = Callable[[Any, float, int], Any]
"""Function that moves a float64 tensor by up to a relative distance; the number tells the tensors of a run apart."""


def random_moves(seed: int) -> Move:
    """Return a function that moves each number up or down at random, with a generator of its own."""

    def move(tensor: Any, distance: float, number: int) -> Any:
        import torch

        generator = torch.Generator(tensor.device).manual_seed(seed + 1000 * number)
        moves = torch.rand(tensor.shape, dtype=torch.float64, device=tensor.device, generator=generator)
        return tensor + tensor * moves.mul_(2).sub_(1).mul_(distance)

    return move


def upward(tensor: Any, distance: float, number: int) -> Any:
    """Move each number away from minus infinity, which bounds what rounding does to sums."""
    return tensor + tensor.abs() * distance


def downward(tensor: Any, distance: float, number: int) -> Any:
    """Move each number towards minus infinity."""
    return tensor - tensor.abs() * distance
