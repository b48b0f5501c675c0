"""The order in which kernels on a CUDA device read the elements of views."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stepscope.tracer.runtime.stats.cuda_rows import (
    DIMENSIONS,
    LINEAR,
    PERMUTED,
    PITCHED,
    STRIDED,
    TABLE_WORDS,
    VECTOR,
    view_table,
)


def offsets_by_dimensions(table: list[int], numel: int) -> list[tuple[int, int]]:
    """Offset in memory and flat index of each element, from the dimensions of a table."""
    found = []
    for index in range(numel):
        rest, offset, logical = index, 0, 0
        for dimension in reversed(range(DIMENSIONS)):
            size, stride, weight = table[3 * dimension : 3 * dimension + 3]
            rest, coordinate = divmod(rest, size)
            offset += coordinate * stride
            logical += coordinate * weight
        found.append((offset, logical))
    return found


def offsets_by_pieces(table: list[int], numel: int, itemsize: int) -> list[int]:
    in_piece, group, pitch, group_pitch = table[3 * DIMENSIONS : -1]
    found: list[int] = []
    for vector in range(numel * itemsize // VECTOR):
        piece, within = divmod(vector, in_piece)
        outer, inner = divmod(piece, group)
        first = (outer * group_pitch + inner * pitch + within) * VECTOR // itemsize
        found += range(first, first + VECTOR // itemsize)
    return found


@st.composite
def views(draw: st.DrawFn) -> torch.Tensor:
    sizes = draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4))
    view = torch.zeros(sizes)
    for dimension, size in enumerate(sizes):
        start = draw(st.integers(0, size - 1))
        view = view.narrow(dimension, start, draw(st.integers(1, size - start)))
    view = view.permute(draw(st.permutations(range(view.dim()))))
    if draw(st.booleans()):
        view = view.unsqueeze(draw(st.integers(0, view.dim())))
        view = view.expand([draw(st.integers(2, 3)) if size == 1 else size for size in view.shape])
    return view


@pytest.mark.slow
@given(view=views(), itemsize=st.sampled_from([2, 4, 8]))
def test_every_element_is_read_once_in_one_order(view: torch.Tensor, itemsize: int) -> None:
    found = view_table(view.shape, view.stride(), itemsize)
    if found is None:
        assert view.dim() > DIMENSIONS
        return
    form, table = found
    if form == LINEAR:
        assert view.is_contiguous()
        return
    assert len(table) == TABLE_WORDS
    by_dimensions = offsets_by_dimensions(table, view.numel())
    indices = torch.cartesian_prod(*map(torch.arange, view.shape)).reshape(view.numel(), -1)
    places = (indices * torch.tensor(view.stride())).sum(1).tolist()
    assert sorted(by_dimensions) == sorted(zip(places, range(view.numel()), strict=True))
    if form == PITCHED:
        assert [offset for offset, _ in by_dimensions] == offsets_by_pieces(table, view.numel(), itemsize)
    elif form == PERMUTED:
        assert [offset for offset, _ in by_dimensions] == list(range(view.numel()))


def test_forms_of_views_of_a_transformer() -> None:
    q, k, _ = torch.zeros(4, 16, 3, 8, 64).permute(2, 0, 3, 1, 4).unbind(0)
    assert view_table(q.shape, q.stride(), 4)[0] == PITCHED  # type: ignore[index]
    assert view_table(k.shape, k.stride(), 2)[1][3 * DIMENSIONS : -1] == [64, 64, 192, 0]  # type: ignore[index]
    mask = torch.zeros(4, 1, 16, 32).expand(4, 8, 16, 32)
    assert view_table(mask.shape, mask.stride(), 4)[0] == PITCHED  # type: ignore[index]
    weight = torch.zeros(64, 32).T
    assert view_table(weight.shape, weight.stride(), 4)[0] == PERMUTED  # type: ignore[index]


@pytest.mark.parametrize(
    "view",
    [
        torch.zeros(8, 33)[:, 1:],
        torch.zeros(8, 32)[:, ::2],
        torch.zeros(8, 6)[:, :3],
        torch.zeros(1).expand(math.prod((4, 8))),
    ],
    ids=["odd rows", "every second", "short rows", "one element"],
)
def test_other_views_are_read_element_by_element(view: torch.Tensor) -> None:
    assert view_table(view.shape, view.stride(), 4)[0] == STRIDED  # type: ignore[index]
