"""Copies of inputs keep what the graph can notice: strides, shared memory, gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stepscope.tracer.judge.clones import NotComparable, copies, share_memory, with_gradients

BASE = torch.arange(48.0)
LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "dense": lambda: torch.arange(6.0).view(2, 3),
    "transposed": lambda: torch.arange(6.0).view(2, 3).T,
    "strided": lambda: BASE.view(6, 8)[::2, 1::3],
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "offset": lambda: BASE[5:9],
    "scalar": lambda: torch.tensor(2.0),
    "empty": lambda: torch.empty(0, 4),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("wide", [False, True])
def test_a_copy_has_the_values_and_strides(layout: str, wide: bool) -> None:
    value = LAYOUTS[layout]()
    (copy,) = copies([value], {torch.float32: torch.float64} if wide else None)
    assert copy.dtype == (torch.float64 if wide else torch.float32)
    assert copy.stride() == value.stride()
    assert torch.equal(copy.float(), value)
    assert not share_memory(copy, value)


@pytest.mark.parametrize("wide", [False, True])
def test_shared_memory_stays_shared(wide: bool) -> None:
    base = torch.arange(12.0)
    values = [base.view(3, 4), base[2:5], base.view(3, 4), 7]
    one, part, again, number = copies(values, {torch.float32: torch.float64} if wide else None)
    part.zero_()
    assert one.flatten()[2:5].tolist() == [0, 0, 0]
    assert again.flatten()[2:5].tolist() == [0, 0, 0]
    assert number == 7
    assert base[2] == 2


def test_the_same_tensor_is_copied_once() -> None:
    value = torch.ones(3)
    one, other = copies([value, value])
    assert one is other


@pytest.mark.parametrize("is_leaf", [False, True])
def test_gradients_reach_the_leaves(is_leaf: bool) -> None:
    value = torch.ones(3, requires_grad=True)
    original = value if is_leaf else value * 2
    clones = with_gradients(copies([original, torch.ones(3)]), [original, None])
    changed = clones.values[0] if is_leaf else clones.values[0].mul_(3)  # a leaf may not be changed in place
    leaf = clones.leaves[0]
    assert leaf is not None
    (gradient,) = torch.autograd.grad((changed * clones.values[1]).sum(), leaf)
    assert gradient.tolist() == [1, 1, 1] if is_leaf else [3, 3, 3]
    assert clones.leaves[1] is None


class Other(Tensor):
    pass


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (torch.ones(2).as_subclass(Other), "subclass Other"),
        (torch.ones(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.ones(2, dtype=torch.complex64).conj(), "conjugated"),
        (torch.Generator(), "Generator"),
        (torch.ones(2, device="meta"), "no data"),
    ],
)
def test_what_cannot_be_copied_is_said(value: object, said: str) -> None:
    with pytest.raises(NotComparable, match=said):
        copies([value])
