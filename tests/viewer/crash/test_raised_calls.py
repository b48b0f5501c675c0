"""Exceptions that left calls of compiled code: one finding for the same exception at the same line."""

from __future__ import annotations

from pathlib import Path

from stepscope.tracer.schema.graphs import LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End, Frame
from stepscope.tracer.schema.raised_calls import RaisedCall
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.open import open_trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, argument, graph, run

LOOK_UP = Frame("/src/model.py", 12, "forward", "return self.table[ids]")
CALLERS = [Frame("/src/serve.py", line, "answer", "model(ids)") for line in (30, 40)]
MS = 1_000_000


def serving(rank: int, texts: list[str]) -> LogBuilder:
    """A server that catches what its calls raise; the call of each text is of another graph of the same line."""
    log = LogBuilder().record(run(guesses_steps=True, rank=rank, world_size=2))
    for number, text in enumerate(texts):
        site = LaunchSite(0, "call", 20, "cpp_fused_index_0", "cpp", [argument("arg0_1", "in")], [])
        log.record(graph(number, compile_id=f"0/{number}", sites=[site], memory=[], functions=["call"]))
        log.record(Provenance(number, [LOOK_UP], [SiteProvenance(0, [[0]], ["index"])]))
        start = MONOTONIC_NS + number * MS
        calls = Calls([number], [number], [0], [number], [1], [None], [start], [1000], [1], ["raised"])
        log.record(Launches(calls, [0], [start], [start + 500]))
        log.record(RaisedCall(number, number, number, 0, False, 20, "cpp_fused_index_0(arg0_1)", "RuntimeError", text,
                              [CALLERS[number % 2]]))  # fmt: skip
    return log.record(End("exit", MONOTONIC_NS + 10 * MS))


def titles(folder: Path, logs: list[LogBuilder]) -> tuple[list[str], list[str]]:
    for rank, log in enumerate(logs):
        log.write(folder / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    with open_trace(folder) as trace:
        found = [one for one in all_findings(trace) if one.kind == "raised_call"]
    return [one.title for one in found], found[0].proof


def test_one_finding_for_the_graphs_and_ranks_of_a_line(tmp_path: Path) -> None:
    text = "index out of bounds: 0 <= tmp1 < 100"
    found, proof = titles(tmp_path, [serving(0, [text, text]), serving(1, [text])])
    assert len(found) == 1
    assert "(model.py:12) raised RuntimeError: index out of bounds: 0 <= tmp1 < 100 (3 times) in 2 logs" in found[0]
    assert found[0].endswith("; the program went on")
    assert proof[1:] == ["It was called at serve.py:30: model(ids)", "It was called at serve.py:40: model(ids)"]


def test_other_exceptions_have_findings_of_their_own(tmp_path: Path) -> None:
    found, _ = titles(tmp_path, [serving(0, ["index out of bounds: 0 <= tmp1 < 100", "no memory"])])
    assert len(found) == 2
