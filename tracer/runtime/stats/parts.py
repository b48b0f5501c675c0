"""Decomposes an argument into dense strided tensors that can be read, or says why it cannot be read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from stepscope.tracer.inductor.stats_toolchain import (
    function_mode_active,
    is_fake,
    plain_torch,
    stands_for_another,
    stored_values,
)
from stepscope.tracer.runtime.stats import Part
from stepscope.tracer.runtime.stats.dtypes import KINDS, name_of

PLAIN = (Tensor, torch.nn.Parameter, torch.nn.Buffer)
MOST_DEPTH = 8
"""Maximum nesting of subclasses."""


def parts(value: object) -> list[Part]:
    """Return the parts of an argument; empty if it is not a tensor. Never raises; hidden from modes and subclasses."""
    if not isinstance(value, Tensor):
        return []
    try:
        if type(value) in PLAIN and not function_mode_active():
            plain = _plain(value)
            if plain is not None:
                return [plain]
        with plain_torch():
            return _parts(value, None, 0)
    except Exception as error:
        return [Part(None, None, _try_dtype(value), 0, f"it cannot be read: {type(error).__name__}: {error}"[:300])]


def _plain(value: Tensor) -> Part | None:
    """Return the only part of a tensor whose memory has the values of its dtype; None for other tensors."""
    kind = KINDS.get(value.dtype)
    if kind is None or value.layout is not torch.strided or value.is_meta:
        return None
    if value.is_neg() or value.is_nested or stands_for_another(value):
        return None
    numel = value.numel()
    if numel and value.data_ptr() == 0:
        return None
    return Part(None, value, name_of(value.dtype), numel * kind.values)


def _parts(value: Tensor, name: str | None, depth: int) -> list[Part]:
    dtype = name_of(value.dtype)
    why = _unreadable(value)
    if why is None and type(value) not in PLAIN and hasattr(value, "__tensor_flatten__"):
        return _inner(value, name, dtype, depth)
    if why is not None:
        return [Part(name, None, dtype, _try_numel(value), why)]
    if value.is_nested:
        return _renamed(value.values(), name, "values", dtype)
    if value.layout is not torch.strided:
        is_coo = value.layout is torch.sparse_coo
        # `values()` needs a coalesced tensor, so the stored values are read.
        return _renamed(stored_values(value) if is_coo else value.values(), name, "values", dtype)
    if value.is_quantized:
        return _renamed(value.int_repr(), name, "int_repr", dtype)
    plain = value if type(value) in PLAIN else value.as_subclass(Tensor)
    if plain.is_complex():
        plain = plain.detach()
        # torch.real and torch.imag resolve a lazy conjugation.
        both = ("real", torch.real(plain)), ("imag", torch.imag(plain))
        return [part for at, tensor in both for part in _renamed(tensor, name, at, dtype)]
    return _renamed(plain, name, None, dtype)


def _renamed(tensor: Tensor, outer: str | None, name: str | None, dtype: str) -> list[Part]:
    """Return a dense strided tensor as the part ``outer.name`` of an argument with `dtype`."""
    full = ".".join(filter(None, (outer, name))) or None
    kind = KINDS.get(tensor.dtype)
    if kind is None:
        return [Part(full, None, dtype, tensor.numel(), f"{dtype}: its bits are not numbers")]
    tensor = tensor.resolve_neg()
    if tensor.numel() and tensor.data_ptr() == 0:
        return [
            Part(full, None, dtype, tensor.numel() * kind.values, "its memory has been freed or was never allocated")
        ]
    return [Part(full, tensor, dtype, tensor.numel() * kind.values)]


def _inner(value: Any, name: str | None, dtype: str, depth: int) -> list[Part]:
    """Return the parts of a wrapper subclass's inner tensors (torch.utils._python_dispatch, `__tensor_flatten__`)."""
    if depth >= MOST_DEPTH:
        return [Part(name, None, dtype, _try_numel(value), "subclasses are nested too deeply")]
    found: list[Part] = []
    for attribute in value.__tensor_flatten__()[0]:
        inner = getattr(value, attribute)
        if isinstance(inner, Tensor):
            found += _parts(inner, f"{name}.{attribute}" if name else attribute, depth + 1)
    return found


def _unreadable(value: Tensor) -> str | None:
    if is_fake(value):
        return "fake tensor: it has no memory"
    if stands_for_another(value):
        return "wrapper of a trace or a transform: it represents another tensor"
    if type(value).__name__ == "AsyncCollectiveTensor" and not getattr(value, "completed", False):
        return "a collective is still writing it"
    if value.is_meta:
        return "meta tensor: it has no memory"
    if value.layout not in (
        torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc,
        torch.jagged,
    ):  # fmt: skip
        return f"layout {str(value.layout).removeprefix('torch.')}: only its library knows its memory"
    return None


def _try_dtype(value: Tensor) -> str:
    try:
        with plain_torch():
            return name_of(value.dtype)
    except Exception:
        return "unknown"


def _try_numel(value: Tensor) -> int:
    try:
        return int(value.numel())
    except Exception:
        return 0
