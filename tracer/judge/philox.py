"""Recomputes random numbers of Inductor's kernels: Philox4x32-10, with the seed as key and the index as counter.

The CPU code is `normalized_rand_cpu`, `randn_cpu` and `randint64_cpu` in torch/_inductor/codegen/cpp_prefix.h (torch
2.9 to 2.13); Triton kernels call `tl.rand`, `tl.randn` and `tl.randint4x` (triton/language/random.py, and
`randint64` in torch/_inductor/runtime/triton_helpers.py). They differ in how bits become numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Words = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]
_ROUNDS = 10
_LOW, _32 = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def philox(seed: int, counters: npt.NDArray[np.uint64]) -> Words:
    """Return four words of 32 bits for each counter, in arrays of 64 bits."""
    key0, key1 = np.uint64(seed & 0xFFFFFFFF), np.uint64((seed >> 32) & 0xFFFFFFFF)
    c0, c1 = counters & _LOW, counters >> _32
    c2 = c3 = np.zeros_like(counters)
    for _ in range(_ROUNDS):
        product0, product1 = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> _32) ^ c1 ^ key0,
            product1 & _LOW,
            (product0 >> _32) ^ c3 ^ key1,
            product0 & _LOW,
        )
        key0, key1 = (key0 + _STEPS[0]) & _LOW, (key1 + _STEPS[1]) & _LOW
    return c0, c1, c2, c3


def uniform(seed: int, size: list[int], offset: int, on_cpu: bool) -> npt.NDArray[np.float32]:
    """Return numbers from 0 to 1, as `prims.inductor_random` with the mode ``rand``."""
    return _unit(philox(_seed(seed, on_cpu), _counters(size, offset))[0], on_cpu).reshape(size)


def normal(seed: int, size: list[int], offset: int, on_cpu: bool, double: bool = False) -> npt.NDArray[Any]:
    """Return normally distributed numbers (Box-Muller), as with the mode ``randn``; with `double` in float64.

    The angle takes most of the precision where the cosine is small. Kernels on the CPU compute all but the logarithm
    in float64 (`randn` in ATen/core/PhiloxRNGEngine.h), and Triton computes everything in float32.
    """
    words = philox(_seed(seed, on_cpu), _counters(size, offset))
    first, second = _unit(words[0], on_cpu), _unit(words[1], on_cpu)
    first = np.float32(1) - first if on_cpu else np.maximum(np.float32(1e-7), first)
    second = np.float32(1) - second if on_cpu else second
    wide: Any = np.float64 if on_cpu or double else np.float32
    logarithm = np.log(first.astype(np.float64) if double else first).astype(wide)
    found: npt.NDArray[Any] = np.sqrt(wide(-2) * logarithm) * np.cos(wide(2 * np.pi) * second.astype(wide))
    return found.astype(np.float64 if double else np.float32).reshape(size)


def integers(seed: int, size: list[int], low: int, high: int, offset: int, on_cpu: bool) -> npt.NDArray[np.int64]:
    """Return integers from `low` to before `high`, as `prims.inductor_randint`."""
    words = philox(_seed(seed, on_cpu), _counters(size, offset))
    bits = words[0] | (words[1] << _32)
    found = (bits % np.uint64(high - low)).astype(np.int64) + np.int64(low)
    return found.reshape(size)


def drawn(target: str, args: tuple[Any, ...], kwargs: dict[str, Any], double: bool) -> Any:
    """Return the tensor that `prims.inductor_random` or `prims.inductor_randint` makes, on the device of the seed.

    With `double` what follows from the drawn bits is computed in float64.
    """
    import torch

    offset = int(kwargs.get("offset", 0))
    if "randint" in target:
        low, high, size, seed = args[:4]
        found: Any = integers(int(seed), list(size), int(low), int(high), offset, not seed.is_cuda)
    else:
        size, seed, mode = args[:3]
        drawing = int(seed), list(size), offset, not seed.is_cuda
        found = uniform(*drawing) if mode == "rand" else normal(*drawing, double)
    return (
        torch.from_numpy(np.ascontiguousarray(found)).reshape(size).to(seed.device)
    )  # numpy makes one dimension of none


def _seed(seed: int, on_cpu: bool) -> int:
    """Return the key: kernels on the CPU use the low half of the seed."""
    return seed & 0xFFFFFFFF if on_cpu else seed & 0xFFFFFFFFFFFFFFFF


def _counters(size: list[int], offset: int) -> npt.NDArray[np.uint64]:
    return np.arange(int(np.prod(size, dtype=np.int64)), dtype=np.uint64) + np.uint64(offset)


def _unit(words: npt.NDArray[np.uint64], on_cpu: bool) -> npt.NDArray[np.float32]:
    if on_cpu:
        return (words & np.uint64(0x7FFFFFFF)).astype(np.float32) * np.float32(4.6566127342e-10)
    signed = words.astype(np.uint32).view(np.int32)
    magnitude = np.where(signed < 0, ~signed, signed)
    return magnitude.astype(np.float32) * np.float32(4.6566127342e-10)
