"""Which compile our records name in their headers."""

from __future__ import annotations

from dataclasses import replace

from stepscope.tracer.log.run_log import CompileEnvelopes
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.schema.process_ends import Overhead
from tests.logs import synthetic
from tests.logs.memory_records import recompute

FIRST = {"frame_id": 0, "frame_compile_id": 0, "attempt": 1}
NESTED = {"compiled_autograd_id": 2, "frame_id": 0, "frame_compile_id": 1, "attempt": 0}


def graph(number: int, compile_id: str | None) -> Graph:
    return replace(synthetic.graph(number), compile_id=compile_id)


def test_a_graph_has_the_ids_of_its_compile_and_so_has_what_is_said_of_it() -> None:
    ids = CompileEnvelopes()
    ids.note({"dynamo_start": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0})
    ids.note({"artifact": {"name": "x"}, **FIRST, "rank": 3, "has_payload": "md5"})
    ids.note({"artifact": {"name": "y"}, **NESTED})
    assert ids.of(graph(0, "0/0")) == FIRST
    assert ids.of(graph(1, "!2/0/1")) == NESTED
    assert ids.of(synthetic.tensors()) == FIRST
    assert ids.of(Skipped("launches", "no reason", 1)) == NESTED


def test_a_graph_keeps_its_ids_when_torch_counts_anew() -> None:
    ids = CompileEnvelopes()
    ids.note(FIRST)
    assert ids.of(graph(0, "0/0")) == FIRST
    ids.note({**FIRST, "attempt": 0})
    assert ids.of(synthetic.tensors()) == FIRST
    assert ids.of(graph(0, "0/0")) == FIRST, "written again in a forked child"
    assert ids.of(graph(1, "0/0")) == {**FIRST, "attempt": 0}


def test_records_of_no_compile_have_no_ids() -> None:
    ids = CompileEnvelopes()
    ids.note({"str": ["a.py", 0]})
    ids.note(FIRST)
    assert ids.of(graph(0, None)) == {}
    assert ids.of(synthetic.tensors()) == {}
    assert ids.of(Overhead(1, 1, 1, 1, 0)) == {}
    assert ids.of(synthetic.calls(0, 0, 1)) == {}


def test_a_mismatch_of_a_compile_that_failed_has_the_ids_of_that() -> None:
    ids = CompileEnvelopes()
    ids.note(FIRST)
    lost = replace(recompute(), graph=None, compile_id="0/0")
    assert ids.of(lost) == FIRST
