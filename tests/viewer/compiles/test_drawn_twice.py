"""Random numbers that a forward graph draws and that its backward graph draws anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs
from tests.logs.synthetic import LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]
IDS: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
HEAD = (
    "class GraphModule(torch.nn.Module):\n    def forward(self):\n        # File: /src/model.py:9 in f, code: y = x\n"
)
DRAW = '        {}: "f32[8][1]cpu" = torch.ops.aten.rand.default([8])\n'


def log_of(forward: str, backward: str, compiles: int = 1) -> LogBuilder:
    log = LogBuilder().record(run())
    for number in range(compiles):
        ids = {**IDS, "frame_compile_id": number}
        log.torch("dynamo_start", {"stack": []}, **ids)
        for phase, text in (("forward", forward), ("backward", backward)):
            log.torch(f"aot_{phase}_graph", {}, (HEAD + text).encode(), **ids)
        compile_logs.metrics(log, 0, number, co_name="f", co_filename="/src/model.py", co_firstlineno=8)
    return log


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "other_recomputation"]


@pytest.mark.parametrize(
    ("count", "said"),
    [
        (1, "have rand_0, which the partitioner recomputes instead of saving it."),
        (9, "rand_6, rand_7, …, which the partitioner recomputes instead of saving them."),
    ],
)
def test_what_is_drawn_twice_is_named(opened: Open, count: int, said: str) -> None:
    text = "".join(DRAW.format(f"rand_{n}") for n in range(count))
    (finding,) = found(opened(log_of(text, text)))
    assert finding.proof[0].endswith(said)
    assert finding.source is not None
    assert finding.source.line == 9


def test_all_compiles_of_a_function_share_a_finding(opened: Open) -> None:
    (finding,) = found(opened(log_of(DRAW.format("rand"), DRAW.format("rand"), compiles=3)))
    assert finding.title.startswith(
        "The backward pass of f (model.py:8) draws new random numbers (model.py:9) in place"
    )


def test_other_numbers_and_those_that_are_restored_do_not_count(opened: Open) -> None:
    forward = (
        DRAW.format("rand") + "        one = torch.ops.rngprims.run_and_save_rng_state(torch.ops.aten.rand.default)\n"
    )
    assert found(opened(log_of(forward, DRAW.format("rand_1") + forward.split("\n")[1] + "\n"))) == []


def test_a_graph_of_empty_lines_is_read_in_linear_time(opened: Open) -> None:
    trace = opened(log_of(DRAW.format("rand"), "\n" * 200_000))
    began = time.process_time()
    assert found(trace) == []
    assert time.process_time() - began < 10
