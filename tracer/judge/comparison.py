"""Compares what two runs of a graph gave: values, dtypes, shapes, strides, and which tensors share memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from stepscope.tracer.judge.clones import share_memory
from stepscope.tracer.judge.layer_rule import Judged, judge, same_bits
from stepscope.tracer.schema.layer_checks import TensorDifference, WhatDiffers
from stepscope.tracer.schema.process_ends import Frame

MOST_DIFFERENCES = 16


@dataclass
class Side:
    """What one run gave."""

    outputs: list[Any]
    inputs: list[Any]
    """The inputs after the call."""

    @property
    def results(self) -> list[Any]:
        return [*self.outputs, *self.inputs]


@dataclass(frozen=True)
class References:
    """The results in float64: exact, and with the errors that rounding may make."""

    float64: list[Any]
    perturbed: list[list[Any]]


@dataclass
class Named:
    """The names and model lines of the results of a graph."""

    names: list[str]
    lines: list[Frame | None] = field(default_factory=list)

    def line(self, position: int) -> Frame | None:
        return self.lines[position] if position < len(self.lines) else None


def structure(before: Side, after: Side, named: Named) -> list[TensorDifference]:
    """Return the differences apart from values."""
    found = []
    count = len(before.outputs)
    for position, (one, other) in enumerate(zip(before.results, after.results, strict=True)):
        if isinstance(one, Tensor) != isinstance(other, Tensor):
            text = f"it is a {type(other).__name__} instead of a {type(one).__name__}"
            found.append(_difference(named, position, "dtype", text))
        elif isinstance(one, Tensor):
            found += _of_tensor(one, other, named, position, is_output=position < count)
    for position in range(count):
        found += _relations(before, after, named, position)
    return found


def _of_tensor(one: Tensor, other: Tensor, named: Named, position: int, *, is_output: bool) -> list[TensorDifference]:
    facts: list[tuple[WhatDiffers, Any, Any]] = [
        ("dtype", str(one.dtype), str(other.dtype)),
        ("shape", list(one.shape), list(other.shape)),
    ]
    if is_output and one.shape == other.shape:
        facts += [
            ("strides", _strides(one), _strides(other)),
            ("requires_grad", one.requires_grad, other.requires_grad),
        ]
    return [
        _difference(named, position, what, f"{what} {theirs} instead of {ours}", other)
        for what, ours, theirs in facts
        if ours != theirs
    ]


def _strides(tensor: Tensor) -> list[int]:
    """Return the strides that matter: those of dimensions with several elements."""
    if tensor.numel() == 0:
        return []
    return [stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]


def _relations(before: Side, after: Side, named: Named, position: int) -> list[TensorDifference]:
    found = []
    for what, related in (("alias", _shares), ("identity", _is_same)):
        one, other = (_related(side.results, position, related) for side in (before, after))
        later = {index for index in other - one if index >= len(before.outputs) or index > position}
        for index in sorted(later):
            text = f"it {_IS[what]} {named.names[index]}, and {_SHOULD_NOT[what]}"
            found.append(_difference(named, position, what, text))
        for index in sorted(index for index in one - other if index >= len(before.outputs) or index > position):
            found.append(_difference(named, position, what, f"it no longer {_IS[what]} {named.names[index]}"))
    return found


def _related(results: Sequence[Any], position: int, related: Callable[..., bool]) -> set[int]:
    return {index for index in range(len(results)) if index != position and related(results, position, index)}


_SHOULD_NOT: dict[Any, str] = {"alias": "should not", "identity": "should not be"}
_IS: dict[Any, str] = {"alias": "shares memory with", "identity": "is the same tensor as"}


def _shares(results: Sequence[Any], one: int, other: int) -> bool:
    a, b = results[one], results[other]
    return isinstance(a, Tensor) and isinstance(b, Tensor) and share_memory(a, b)


def _is_same(results: Sequence[Any], one: int, other: int) -> bool:
    return isinstance(results[one], Tensor) and results[one] is results[other]


def values(
    before: Side, after: Side, named: Named, eps: float, references: Callable[[int], References]
) -> tuple[list[TensorDifference], list[TensorDifference]]:
    """Return the tensors whose values differ, and those in which only the first run is far from float64.

    `references` is called only if the bits differ, with the number of perturbed runs that are wanted.
    """
    pairs = [
        (position, one, other)
        for position, (one, other) in enumerate(zip(before.results, after.results, strict=True))
        if isinstance(one, Tensor) and isinstance(other, Tensor)
        if one.dtype == other.dtype and one.shape == other.shape and not same_bits(one, other)
    ]
    if not pairs:
        return [], []
    found: dict[int, Judged] = {}
    for wanted in (2, 5):  # more rounding errors are tried before something is called wrong
        reference = references(wanted)
        found = {
            position: judge(other, one, reference.float64[position], [p[position] for p in reference.perturbed], eps)
            for position, one, other in pairs
        }
        if not any(judged.verdict == "differs" for judged in found.values()):
            break
    tensor = {position: other for position, _, other in pairs}
    told = {
        verdict: [
            _of_values(named, position, tensor[position], judged)
            for position, judged in found.items()
            if judged.verdict == verdict
        ]
        for verdict in ("differs", "eager_is_off")
    }
    return told["differs"], told["eager_is_off"]


def _of_values(named: Named, position: int, tensor: Tensor, judged: Judged) -> TensorDifference:
    numbers = {
        "wrong": judged.wrong, "elements": tensor.numel(), "index": list(judged.index),
        "before": _number(judged.eager), "after": _number(judged.compiled), "float64": _number(judged.float64),
        "allowed": judged.allowed, "before_error": judged.eager_error, "after_error": judged.compiled_error,
        "rounding_error": judged.rounding_error,
    }  # fmt: skip
    text = f"{judged.wrong:,} of {tensor.numel():,} elements differ"
    return _difference(named, position, "values", text, tensor, **numbers)


def _number(value: Any) -> str | None:
    return repr(float(value)) if isinstance(value, int | float) else None


def _difference(
    named: Named, position: int, what: Any, text: str, tensor: Any = None, **numbers: Any
) -> TensorDifference:
    about: dict[str, Any] = {}
    if isinstance(tensor, Tensor):
        about = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
    return TensorDifference(named.names[position], what, text, **about, **numbers, frame=named.line(position))
