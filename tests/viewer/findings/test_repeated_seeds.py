"""The finding about random numbers that are the same in each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.repeats import RepeatedSeed
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, calls, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
BEGIN, EVERY = 10**15, 10_000
TIMES = range(BEGIN, BEGIN + 6 * EVERY, EVERY)
DYNAMO = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8][1]cpu"):
        l_x_ = L_x_

        # File: /src/model.py:9 in forward, code: return self.dropout(x)
        one: "f32[8][1]cpu" = torch.nn.functional.dropout(l_x_, 0.5, True, False);  l_x_ = None
        return (one,)
"""
AOT = """class GraphModule(torch.nn.Module):
    def forward(self, primals_1: "f32[8][1]cpu"):
        # No stacktrace found for following nodes
        inductor_seeds_default: "i64[1][1]{device}" = torch.ops.prims.inductor_seeds.default(1, device(type='{device}'))

        # File: /src/model.py:9 in forward, code: return self.dropout(x)
        seed: "i64[][]{device}" = torch.ops.prims.inductor_lookup_seed.default(inductor_seeds_default, 0)
        rand: "f32[8][1]{device}" = torch.ops.prims.inductor_random.default([8], seed, 'rand')
        return (rand,)
"""


def log_of(
    phase: Literal["forward", "inference"] = "forward",
    aot: str = AOT.replace("{device}", "cpu"),
    dynamo: str = DYNAMO,
    times: Sequence[int] = TIMES,
    compiles: int = 1,
    steps: range = range(6),
    **of_run: Any,
) -> LogBuilder:
    log = LogBuilder().record(run(**of_run))
    for number in range(compiles):
        ids: dict[str, Any] = {"frame_id": 0, "frame_compile_id": number, "attempt": 0}
        log.torch("dynamo_output_graph", {}, dynamo.encode(), **ids)
        log.torch(f"aot_{phase}_graph", {}, aot.encode(), **ids)
        log.record(graph(number, phase=phase, compile_id=f"0/{number}", aot_id=f"{number}_{phase}"))
    for step in steps:
        log.record(calls(2 * step, step, BEGIN + EVERY * step + 500, graph=step % compiles))
    seed = RepeatedSeed("torch.manual_seed", "7", "cpu", [*times], "/src/train.py", 3)
    return log.record(seed).record(End("exit", BEGIN + 10 * EVERY))


def found(trace: Trace) -> list[Finding]:
    return [one for one in all_findings(trace) if one.kind == "repeated_seed"]


@pytest.mark.parametrize("compiles", [1, 2])
def test_a_dropout_that_repeats_itself(opened: Open, compiles: int) -> None:
    (finding,) = found(opened(log_of(compiles=compiles)))
    assert finding.title == (
        "torch.manual_seed(7) (train.py:3) sets the same seed in each of 6 or more steps in a row, so that dropout"
        " (model.py:9) drops the same elements in each of them"
    )
    assert finding.severity == "warning"
    assert finding.source is not None
    assert finding.source.line == 3
    assert finding.evidence["seed"] == "7"


def test_random_numbers_that_are_no_dropout(opened: Open) -> None:
    text = DYNAMO.replace("nn.functional.dropout(l_x_, 0.5, True, False)", "rand_like(l_x_)")
    (finding,) = found(opened(log_of(dynamo=text)))
    assert finding.title.endswith("so that rand_like (model.py:9) draws the same random numbers in each of them")


def test_a_log_without_the_graph_of_dynamo(opened: Open) -> None:
    (finding,) = found(opened(log_of(dynamo="")))
    assert finding.title.endswith("so that compiled code (model.py:9) draws the same random numbers in each of them")


def test_an_inference_between_the_steps(opened: Open) -> None:
    (finding,) = found(opened(log_of("inference")))
    assert finding.severity == "info"


def test_several_ranks_share_a_finding(tmp_path: Path) -> None:
    for rank in range(2):
        log_of(rank=rank, world_size=2).write(tmp_path / f"stepscope_trace_rank_{rank}_{4711 + rank}_a.log")
    with open_trace(tmp_path) as trace:
        (finding,) = found(trace)
    assert finding.title.endswith(" in 2 logs")
    assert finding.evidence["logs"] == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"aot": AOT.replace("{device}", "cuda:0").replace("'cuda:0'", "'cuda'")},  # another generator
        {"aot": AOT.replace("inductor_seeds", "inductor_other")},  # as in eval mode, or with p=0
        {"steps": range(1, 6)},  # nothing was called after the first seed
        {"steps": range(0)},
        {"times": (BEGIN,)},
        {"times": ()},
    ],
)
def test_steps_that_draw_nothing(opened: Open, changes: dict[str, Any]) -> None:
    assert found(opened(log_of(**changes))) == []
