"""The search box finds buffers by the names that the program gives to the inputs and outputs of graphs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.viewer.graphs.queries.named_buffers import buffers_called
from stepscope.viewer.search.queries.jump import jumps
from stepscope.viewer.store.trace import Trace
from tests.logs.named_logs import WEIGHT, named_training
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]


@pytest.fixture
def trace(opened: Opened) -> Trace:
    return opened(named_training())


@pytest.mark.parametrize("text", ["layers.3.weight", "LAYERS.3", WEIGHT, "buffer layers.3"])
def test_a_parameter_is_found_by_a_part_of_its_name(trace: Trace, text: str) -> None:
    first = jumps(trace, text)[0]
    assert (first.kind, first.label, first.page) == ("buffer", WEIGHT, "/graphs/0/buffers/primals_1")
    assert first.detail == "primals_1, graph 0 0/0 forward"
    assert f"<code>{WEIGHT}</code>" in Client(trace).get(first.page).text


def test_the_compilers_name_leads_there_and_tells_the_programs(trace: Trace) -> None:
    first = jumps(trace, "primals_1")[0]
    assert (first.label, first.detail) == ("primals_1", f"{WEIGHT}, graph 0 0/0 forward")


def test_a_whole_name_precedes_those_that_contain_it(trace: Trace) -> None:
    assert [one.name for one in buffers_called(trace, "x", 5)[0]] == ["x"]
    assert [one.name for one in buffers_called(trace, "", 5)[0]] == ["x", "output 0", WEIGHT], "the shortest first"
    assert [one.name for one in buffers_called(trace, "0", 5)[0]] == ["output 0"]


def test_a_search_that_ran_out_of_time_says_so_and_continues(trace: Trace) -> None:
    found, left = buffers_called(trace, "nowhere", 5, seconds=-1)
    assert (found, left) == ([], 1), "the second graph"
    assert buffers_called(trace, "nowhere", 5) == ([], 0)
