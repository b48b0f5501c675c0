"""The compiled code that reads the tensors of a call reads what Python reads, and never raises into the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from stepscope.tracer.runtime.stats.cpu import CpuReader
from stepscope.tracer.runtime.values.quick import Groups, call_reader_type, point_of
from stepscope.tracer.runtime.values.rows import Reading, RowGroup

ALL = 1 << 40


class Points:
    """The points of a wrapper with the reader of each, and what compiled code has asked and told."""

    def __init__(self, *tensors: Sequence[torch.Tensor]) -> None:
        self.readers = [CpuReader(each, ALL) for each in tensors]
        self.groups = [RowGroup(()) for _ in tensors]
        self.points = [point_of(reader, group) for reader, group in zip(self.readers, self.groups, strict=True)]
        self.readings: list[Reading] = []
        self.asked: list[int] = []
        self.lost: list[tuple[int, str]] = []
        made = call_reader_type()
        assert made is not None
        self.read = made(
            self.points, self._choose, lambda place, error: self.lost.append((place, str(error))), self.readings
        )

    def _choose(self, call: object, place: int, values: Sequence[torch.Tensor]) -> None:
        self.asked.append(place)
        with torch._C.DisableTorchFunction():
            self.readings.append((self.groups[place], self.readers[place](values)))


def rows_of(blocks: Sequence[Any]) -> list[Any]:
    return [row for block in blocks for row in block.rows().tolist()]


@pytest.fixture
def tensors() -> list[list[torch.Tensor]]:
    torch.manual_seed(0)
    bad = torch.randn(300)
    bad[7], bad[9] = torch.nan, torch.inf
    return [
        [torch.randn(5, 40).t(), torch.arange(9)],
        [torch.empty(0), bad.bfloat16()],
        [torch.randn(200_000)],  # several threads read it, without the GIL
        [torch.full((3,), float(n)) for n in range(40)],
    ]


def test_rows_are_those_that_python_reads(tensors: list[list[torch.Tensor]]) -> None:
    points = Points(*tensors)
    for place in (0, 1, 2, 3, 1):
        points.read(None, place, tuple(tensors[place]))
    expected = [points.readers[place](tensors[place]) for place in (0, 1, 2, 3, 1)]
    assert str(rows_of([block for _, block in points.readings])) == str(rows_of(expected))
    assert len(points.readings) == 1
    assert not points.asked
    assert points.read.taken_ns > 0


def test_order_is_kept_where_python_reads_some(tensors: list[list[torch.Tensor]]) -> None:
    points = Points(*tensors)
    points.points[1] = None
    for place in (0, 1, 2, 0):
        points.read(None, place, tensors[place])
    expected = [points.readers[place](tensors[place]) for place in (0, 1, 2, 0)]
    assert str(rows_of([block for _, block in points.readings])) == str(rows_of(expected))
    assert points.asked == [1]


def test_groups_name_the_rows_of_each_reading(tensors: list[list[torch.Tensor]]) -> None:
    groups, numbers = Groups(), []
    for places in (0, 1), (0, 1), (1, 0):
        points = Points(*tensors)
        points.groups[:] = same = _GROUPS
        points.points[:] = [point_of(reader, group) for reader, group in zip(points.readers, same, strict=False)]
        for place in places:
            points.read(None, place, tensors[place])
        found = groups.of(points.readings)
        assert [row for group, _ in found for row in group.rows] == [_NAMES[place] for place in places]
        numbers.append([group.number for group, _ in found])
    assert numbers[0] == numbers[1] != numbers[2]


_NAMES: list[Any] = ["first", "second"]
_GROUPS = [RowGroup([name]) for name in _NAMES]


def test_an_error_is_told_and_adds_no_row(tensors: list[list[torch.Tensor]]) -> None:
    points = Points(*tensors)
    points.read(None, 0, tensors[0])
    points.read(None, 1, (tensors[1][0], None))
    points.read(None, 1, (tensors[1][0],))
    points.read(None, 0, tensors[0])
    assert [place for place, _ in points.lost] == [1, 1]
    assert "data_ptr" in points.lost[0][1]
    assert "not 2 tensors" in points.lost[1][1]
    assert len(rows_of([block for _, block in points.readings])) == 4


def test_an_interrupt_reaches_the_program(tensors: list[list[torch.Tensor]]) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    made = call_reader_type()
    assert made is not None
    with pytest.raises(KeyboardInterrupt):
        made([None], interrupted, print, [])(None, 0, tensors[0])


def test_a_mode_of_the_program_sees_nothing(tensors: list[list[torch.Tensor]]) -> None:
    seen: list[object] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    points = Points(*tensors)
    with Watch():
        points.read(None, 0, tensors[0])
    assert points.asked == [0]
    assert not seen
    assert len(rows_of([block for _, block in points.readings])) == 2
