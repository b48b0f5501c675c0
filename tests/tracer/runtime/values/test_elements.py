"""Elements of small tensors, exactly as they were when their statistics were read."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.stats import ROW
from stepscope.tracer.runtime.stats.dtypes import KINDS
from stepscope.tracer.runtime.stats.parts import parts
from stepscope.tracer.runtime.values.batches import PendingValues
from stepscope.tracer.runtime.values.elements import ElementReader, elements_of
from stepscope.tracer.runtime.values.reading import PlanPoint, PreparedReading
from stepscope.tracer.runtime.values.rows import PlannedRead

PLANNED = PlannedRead(0, 0, "after", "mm", "buf0", True)
DTYPES = [dtype for dtype, kind in KINDS.items() if kind.values == 1]


class Rows:
    """A reader of statistics that says nothing."""

    def __init__(self, tensors: list[Tensor]) -> None:
        self.looked_at = [tensor.numel() for tensor in tensors]

    def __call__(self, tensors: Any) -> Any:
        found = np.zeros(len(tensors), ROW)

        class Block:
            def rows(self) -> Any:
                return found

            wait = rows

        return Block()


def taken(*tensors: Tensor, most: int = 64) -> dict[int, list[Any]]:
    found = [part for tensor in tensors for part in parts(tensor)]
    reader = ElementReader(Rows([part.tensor for part in found if part.tensor is not None]), found, most)
    return dict(elements_of(reader([part.tensor for part in found if part.tensor is not None])))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_as_it_was(dtype: torch.dtype) -> None:
    if dtype is torch.bool:
        tensor = torch.tensor([True, False, True])
    else:
        bits = torch.randint(
            0, 255, (6 * dtype.itemsize,), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
        )
        tensor = bits.view(dtype)
    numbers = json.loads(json.dumps(taken(tensor)[0]))
    assert len(numbers) == tensor.numel()
    if dtype.is_floating_point:
        back = torch.tensor([float(number) for number in numbers], dtype=torch.float64).to(dtype)
        same = (back.double() == tensor.double()) | (back.double().isnan() & tensor.double().isnan())
        assert bool(same.all())
    else:
        assert numbers == tensor.tolist()


def test_numbers_that_json_has_not() -> None:
    tensor = torch.tensor([math.nan, math.inf, -math.inf, 0.1, -0.0, 1e-45])
    assert json.loads(json.dumps(taken(tensor)[0])) == ["nan", "inf", "-inf", 0.1, -0.0, 1e-45]
    assert taken(torch.tensor([2**63 - 1, -(2**63)])) == {0: [2**63 - 1, -(2**63)]}


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(100.0).view(10, 10)[2:5, ::3],
        torch.tensor(3.0).expand(2, 3),
        torch.tensor(7),
        torch.arange(1 << 20)[:: 1 << 18],
        torch.nn.Parameter(torch.ones(2)),
    ],
    ids=["transposed", "a view", "expanded", "a scalar", "far apart", "with gradient"],
)
def test_strides(tensor: Tensor) -> None:
    assert taken(tensor)[0] == tensor.detach().reshape(-1).tolist()


def test_which_tensors_and_parts() -> None:
    complexes = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0]))
    found = taken(torch.ones(65), torch.ones(64), torch.ones(0), complexes, complexes.conj())
    assert found == {1: [1.0] * 64, 3: [1.0, 2.0], 4: [3.0, 4.0], 5: [1.0, 2.0], 6: [-3.0, -4.0]}
    assert taken(torch.ones(2), most=1) == {}


def test_they_are_those_of_the_moment_of_reading() -> None:
    tensor = torch.ones(2)
    (part,) = parts(tensor)
    block = ElementReader(Rows([tensor]), [part], 8)([tensor])
    tensor.zero_()
    assert dict(elements_of(block)) == {0: [1.0, 1.0]}


def test_memory_that_has_been_freed() -> None:
    tensor = torch.ones(2)
    (part,) = parts(tensor)
    reader = ElementReader(Rows([tensor]), [part], 8)
    tensor.untyped_storage().resize_(0)
    assert dict(elements_of(reader([tensor]))) == {}


def test_rows_of_a_batch() -> None:
    """Two calls with two places each; what cannot be read has a row of its own, the last of its place."""
    batches = PendingValues()
    values = [torch.ones(100), torch.ones(2), torch.empty(3, device="meta"), torch.full((2,), 4.0)]
    places = [PlanPoint([PLANNED], None, None, 64), PlanPoint([PLANNED._replace(site=1)] * 3, None, None, 64)]
    for number in range(2):
        call = GraphCall(0, 0, None, None)
        for place, here in zip(places, (values[:1], values[1:]), strict=True):
            prepared: PreparedReading = place.prepare(here)
            call.readings.append((prepared, prepared.read(here)))
        batches.add(call)
        values[1].fill_(number + 2)
    records = list(batches.take(wait=True))
    layout, batch = records
    assert layout.skipped[:3] == [None] * 3  # type: ignore[union-attr]
    assert batch.elements.row == [1, 2, 5, 6]  # type: ignore[union-attr]
    assert batch.elements.value == [[1.0] * 2, [4.0] * 2, [2.0] * 2, [4.0] * 2]  # type: ignore[union-attr]


def test_nothing_is_taken_unless_it_is_asked_for() -> None:
    prepared = PlanPoint([PLANNED], None, None).prepare([torch.ones(2)])
    assert dict(elements_of(prepared.read([torch.ones(2)]))) == {}
