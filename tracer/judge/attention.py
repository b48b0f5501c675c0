"""Computes scaled dot product attention in float64 where PyTorch has no kernel for that dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FORWARD = {
    "op:aten._scaled_dot_product_flash_attention.default": (4, None),
    "op:aten._scaled_dot_product_efficient_attention.default": (6, 3),
    "op:aten._scaled_dot_product_cudnn_attention.default": (6, 3),
}
"""Positions of `is_causal` and of the bias among the arguments."""


def in_double(target: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the results of an attention operator without dropout for float64 arguments; None for other operators.

    The results are the output and the logarithm of the sum of exponentials, and None for what has no counterpart.
    """
    import torch

    if target not in FORWARD or not args[0].is_cuda:
        return None
    causal, bias = FORWARD[target]
    query, key, value = args[:3]
    scale = kwargs.get("scale") or query.shape[-1] ** -0.5
    groups = query.shape[-3] // key.shape[-3]
    if groups > 1:
        key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
    scores = query @ key.transpose(-1, -2) * scale
    if bias is not None and args[bias] is not None:
        scores = scores + args[bias]
    if len(args) > causal and args[causal]:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return (torch.softmax(scores, -1) @ value, torch.logsumexp(scores, -1), *[None] * 7)
