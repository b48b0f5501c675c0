"""Runs eager code in float64, exactly or with the rounding errors that a lower precision would make.

The mode sees each operation of ATen below autograd, so gradients are computed in float64 as well. The inputs have to be
float64; the mode converts what the operations create.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

WIDER = {
    torch.float32: torch.float64, torch.float16: torch.float64, torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}  # fmt: skip
"""The dtype that takes the place of each dtype of lower precision."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SUMS = _names(
    """
    sum mean mm addmm bmm baddbmm mv addmv dot convolution convolution_backward cumsum embedding_dense_backward
    scatter_add index_add avg_pool2d avg_pool2d_backward _adaptive_avg_pool2d linalg_vector_norm
    """
)
"""Operators that add up products of their inputs. Rounding moves each result by the size of what was added, which may
be far larger than the sum."""
Rounding = Literal["none", "random", "up", "down"]

_MOVES = _names(
    """
    alias arange cat clone copy copy_ detach diagonal_copy embedding empty empty_like empty_strided expand_copy
    eye fill fill_ flip full full_like gather index index_select lift_fresh_copy masked_fill masked_fill_
    masked_select new_empty new_empty_strided new_full new_ones new_zeros ones ones_like permute_copy relu relu_
    repeat roll scalar_tensor select_copy slice_copy slice_scatter select_scatter sort stack t_copy topk tril triu
    unsqueeze_copy view_copy where zero_ zeros zeros_like max min amax amin abs neg sign constant_pad_nd
    max_pool2d_with_indices clamp
    """
)
"""Operators that move numbers, or choose among them, and do not round."""
_COMPOSED = _names(
    """
    native_batch_norm native_batch_norm_backward _native_batch_norm_legit_no_training cudnn_batch_norm_backward
    native_layer_norm native_layer_norm_backward native_group_norm native_group_norm_backward _fused_rms_norm
    _fused_rms_norm_backward _softmax _softmax_backward_data _log_softmax _log_softmax_backward_data var std
    var_mean std_mean gelu gelu_backward
    """
)
"""Operators that eager mode computes in one kernel, often in a higher precision inside. Compiled code computes them in
steps, so that errors of a mean, for example, are common to all elements; they are perturbed in steps."""


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes every operation in float64.

    `rounding` adds to each result what rounding to `eps` may do: ``random`` moves each element by up to half of `eps`
    relative to itself, ``up`` and ``down`` move all of them by half of it, which bounds long sums. Numbers that are
    integers stay as they are, since rounding does not change them.
    """

    supports_higher_order_operators = True

    def __init__(self, rounding: Rounding = "none", eps: float = 0.0, seed: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rounding, self._eps, self._seed = rounding, eps, seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def moved_inputs(self, values: list[Any]) -> list[Any]:
        """Change the float64 inputs in place as the rounding says, and return them."""
        for value in values:
            if isinstance(value, Tensor):
                self._round(None, value)
        return values

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not isinstance(func, torch._ops.OpOverload):
            return _widened(func(*_lowered(args), **_lowered(kwargs)), {})
        if torch.Tag.nondeterministic_seeded in func.tags:
            return self._random(func, args, kwargs)
        if func.namespace not in ("aten", "prims"):
            return _as_written(func, args, kwargs)
        if self._rounding != "none" and _name(func) in _COMPOSED and (steps := decomposition_table.get(func)):
            with self:
                return steps(*tree_map(_wide_dtype, args), **tree_map(_wide_dtype, kwargs))
        written = _written(func, args, kwargs)
        args, kwargs = tree_map(_wide_dtype, (args, kwargs))
        result = func(*args, **kwargs)
        if written:
            for tensor in written:
                self._round(func, tensor)
            return result
        if _is_view(func):
            return result
        if self._rounding != "none" and _name(func) in _SUMS:
            sizes = func(*tree_map(_size, args), **tree_map(_size, kwargs))
            grows = math.sqrt(_terms(args, result)) / 4 * torch.finfo(torch.float32).eps / self._eps
            return tree_map(lambda one, size: self._added(one, size, max(1.0, grows)), result, sizes)
        return tree_map(lambda value: self._new(func, value), result)

    def _added(self, result: Any, size: Any, factor: float) -> Any:
        """Return a sum with the error that adding up numbers of the total `size` may make.

        The errors of partial sums, which are kept in float32 at least, add up as a random walk does.
        """
        if not isinstance(result, Tensor) or result.dtype != torch.float64:
            return self._new(None, result)
        stays = (result == result.round()) & (size == size.round())
        by = moved(size, self._rounding, self._eps, self._generator(size.device), fixes_integers=False) - size
        by *= factor
        return torch.where(stays | ~by.isfinite(), result, result + by)

    def _new(self, func: Any, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.dtype in WIDER:
            value = value.to(WIDER[value.dtype])
        self._round(func, value)
        return value

    def _round(self, func: Any, value: Tensor) -> None:
        if self._rounding == "none" or (func is not None and _name(func) in _MOVES) or value.numel() == 0:
            return
        if value.dtype == torch.complex128:
            value = torch.view_as_real(value)
        if value.dtype == torch.float64 and not _overlaps(value):
            value.copy_(moved(value, self._rounding, self._eps, self._generator(value.device)))

    def _generator(self, device: torch.device) -> torch.Generator:
        """Return a generator of our own, since the program's must not advance."""
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._seed)
        return self._generators[device]

    def _random(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Draw as the program would: in its own dtype, since the numbers of float64 are others."""
        if _written(func, args, kwargs):
            return _as_written(func, args, kwargs)
        return _widened(func(*_lowered(args), **_lowered(kwargs)), {})


def moved(
    value: Tensor, rounding: Rounding, eps: float, generator: torch.Generator, *, fixes_integers: bool = True
) -> Tensor:
    """Return float64 numbers after a rounding error; infinities and NaN stay, and integers with `fixes_integers`."""
    if rounding == "random":
        by = torch.rand(value.shape, dtype=value.dtype, device=value.device, generator=generator).sub_(0.5) * value
    else:
        by = value.abs() * (0.5 if rounding == "up" else -0.5)
    stays = ~value.isfinite()
    if fixes_integers:
        stays |= value == value.round()
    return torch.where(stays, value, value + by * eps)


def _terms(args: Any, result: Any) -> int:
    """Return about how many numbers each element of a sum adds up."""
    tensors = [one for one in args if isinstance(one, Tensor) and one.dim()]
    first = next((one for one in (result if isinstance(result, tuple) else (result,)) if isinstance(one, Tensor)), None)
    if not tensors or first is None:
        return 1
    if len(tensors) == 1:
        return max(1, tensors[0].numel() // max(1, first.numel()))
    return max(one.numel() // one.shape[0] for one in tensors if one.shape[0])


def _size(value: Any) -> Any:
    return value.abs() if isinstance(value, Tensor) and value.is_floating_point() else value


def _name(func: Any) -> str:
    return str(func.overloadpacket.__name__)


def _is_view(func: Any) -> bool:
    return any(one.alias_info is not None and not one.alias_info.is_write for one in func._schema.arguments)


def _written(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the tensors that a call changes."""
    found = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        found += [one for one in (value if isinstance(value, list | tuple) else [value]) if isinstance(one, Tensor)]
    return found


def _as_written(func: Any, args: Any, kwargs: Any) -> Any:
    """Run an operator that may know no float64 in float32, with the changes that it makes to its arguments."""
    lowered: dict[int, Tensor] = {}
    result = func(*_lowered(args, lowered), **_lowered(kwargs, lowered))
    originals = {id(lowered[id(tensor)]): tensor for tensor in _written(func, args, kwargs) if id(tensor) in lowered}
    for narrow, tensor in ((lowered[id(one)], one) for one in originals.values()):
        tensor.copy_(narrow)
    return _widened(result, originals)


def _lowered(tree: Any, known: dict[int, Tensor] | None = None) -> Any:
    known = {} if known is None else known

    def lower(value: Any) -> Any:
        if not isinstance(value, Tensor) or value.dtype not in (torch.float64, torch.complex128):
            return value
        if id(value) not in known:
            known[id(value)] = value.to(torch.float32 if value.dtype == torch.float64 else torch.complex64)
        return known[id(value)]

    return tree_map(lower, tree)


def _widened(tree: Any, originals: dict[int, Tensor]) -> Any:
    def widen(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        return originals.get(id(value), value.to(WIDER[value.dtype]) if value.dtype in WIDER else value)

    return tree_map(widen, tree)


def _wide_dtype(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return WIDER.get(value, value)
    if isinstance(value, Tensor) and value.dtype in WIDER and value.layout is torch.strided:
        return value.to(WIDER[value.dtype])  # a constant of the graph
    return value


def _overlaps(value: Tensor) -> bool:
    """Return whether elements share memory, so that they cannot be moved independently."""
    return any(stride == 0 and size > 1 for size, stride in zip(value.shape, value.stride(), strict=True))
