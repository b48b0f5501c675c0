"""Forms of arguments: each is written down once, and the log says which of them a call had."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from stepscope.tracer.runtime import argument_forms
from stepscope.tracer.runtime.argument_forms import MOST_FORMS, ArgumentForms
from stepscope.tracer.schema.constants import UNRECORDED
from stepscope.tracer.schema.launches import SameTensors, TensorMeta, Tensors

Written = Tensors | SameTensors


class Log:
    """What was written, and what a reader takes it for."""

    def __init__(self) -> None:
        self.forms = ArgumentForms(0, [2, 2, 2])
        self.written: list[Written] = []

    def call(self, number: int, sizes: Mapping[tuple[int, int], int]) -> int:
        """Each launch in order, (site, first argument) -> size. How many records it took."""
        before = len(self.written)
        for (site, first), size in sizes.items():
            self.look(number, site, first, size)
        return len(self.written) - before

    def look(self, call: int, site: int, first: int, size: int) -> None:
        meta = TensorMeta(first, "float32", [size], [1], "cpu", 0, 4 * size)
        record = self.forms.record_of(call, site, first, size, lambda: [meta])
        if record is not None:
            self.written.append(record)

    def size(self, call: int, site: int, argument: int) -> int | None:
        """As the docstrings of the records say; the last record of the last call counts."""
        found = [
            (record.call, place, size)
            for place, record in enumerate(self.written)
            for size in self._sizes(record, site, argument)
            if record.call <= call
        ]
        return max(found)[2] if found else None

    def _sizes(self, record: Written, site: int, argument: int) -> Iterator[int]:
        if isinstance(record, Tensors):
            if record.site == site:
                yield from (meta.size[0] for meta in record.tensors if meta.argument == argument)
        elif (site, argument) >= (record.site, record.argument):
            named = [one for one in self.written if isinstance(one, Tensors) and one.call == record.of]
            for one in named:
                yield from self._sizes(one, site, argument)


ALL = [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1)]


def alike(size: int) -> dict[tuple[int, int], int]:
    return dict.fromkeys(ALL, size)


def test_a_form_that_comes_back_takes_one_record_a_call() -> None:
    log = Log()
    sizes = [16, 17, 16, 16, 17, 18, 16, 18]
    written = [log.call(number, alike(size)) for number, size in enumerate(sizes)]
    assert written == [5, 5, 1, 0, 1, 5, 1, 1]
    for number, size in enumerate(sizes):
        assert [log.size(number, *place) for place in ALL] == [size] * 5


def test_sites_whose_forms_do_not_change_together() -> None:
    log = Log()
    calls = [
        {(0, 0): 1, (1, 0): 5, (2, 0): 8},
        {(0, 0): 2, (1, 0): 5, (2, 0): 9},
        {(0, 0): 1, (1, 0): 6, (2, 0): 9},
        {(0, 0): 2, (1, 0): 6, (2, 0): 8},
        {(0, 0): 1, (1, 0): 5, (2, 0): 9},
    ]
    for number, sizes in enumerate(calls):
        log.call(number, sizes)
    for number, sizes in enumerate(calls):
        assert {place: log.size(number, *place) for place in sizes} == sizes


def test_before_a_launch_the_log_has_the_sizes_of_this_call() -> None:
    """A process may die in any launch: what came before it in the call is told by then."""
    log = Log()
    log.call(0, alike(1))
    log.call(1, alike(2))
    for place in ALL:
        log.look(2, *place, 1)
        assert log.size(2, *place) == 1


def test_a_site_that_runs_several_times_in_a_call() -> None:
    """Each time is told; none of its forms there can be named by the call."""
    log = Log()
    for call in range(3):
        for size in (3, 4, 5):
            log.look(call, 1, 0, size)
            assert log.size(call, 1, 0) == size
    assert not any(isinstance(record, SameTensors) for record in log.written)


def test_calls_of_two_threads_that_take_turns() -> None:
    log = Log()
    log.call(0, alike(1))
    log.call(1, alike(2))
    for place in ALL:
        log.look(2, *place, 1)
        log.look(3, *place, 2)
    for place in ALL:
        assert [log.size(call, *place) for call in range(4)] == [1, 2, 1, 2]


def test_too_many_forms_are_said_once_and_end_it() -> None:
    log = Log()
    for call in range(MOST_FORMS + 3):
        log.look(call, 1, 0, call)
        assert log.forms.is_full(1, 0) is (call >= MOST_FORMS)
    last = log.written[-1]
    assert isinstance(last, Tensors)
    assert (len(log.written), last.call) == (MOST_FORMS + 1, MOST_FORMS)
    assert [(meta.argument, meta.dtype) for meta in last.tensors] == [(0, UNRECORDED), (1, UNRECORDED)]


def test_a_forked_child_says_again_which_form_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log has all forms, in the order in which they were first seen."""
    log = Log()
    for number, size in enumerate((1, 2, 1)):
        log.call(number, alike(size))
    log.written = [record for record in log.written if isinstance(record, Tensors)]
    monkeypatch.setattr(argument_forms, "_forks", argument_forms._forks)
    argument_forms.forget_parent_process()
    assert log.call(3, alike(1)) == 1
    assert {log.size(3, *place) for place in ALL} == {1}
