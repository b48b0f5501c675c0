"""The line that stands for a launch of which no line of the model is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stepscope.tracer.schema.graphs import Provenance, SiteProvenance
from stepscope.tracer.schema.process_ends import Frame
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SourceLine
from stepscope.viewer.ingest.torch_trace.model_lines import model_lines
from stepscope.viewer.ingest.torch_trace.torch_text import UserFrame, caller_of
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, calls, compile_records, graph, run

Open = Callable[[LogBuilder | bytes], Trace]


def lines(opened: Open, modules: list[str]) -> list[Any]:
    log = compile_records(LogBuilder().record(run()))
    known = SiteProvenance(1, [[0]], ["relu"])
    frames = [Frame("/src/model.py", 9, "forward", "y = relu(x)")]
    log.record(graph()).record(Provenance(0, frames, [known, SiteProvenance(2, [], [], modules)]))
    return [row.stacks for row in site_rows(opened(log.record(calls(0, 0, 1000))), [1, 2, 3])]


def test_modules_and_the_call_stand_where_no_line_is_known(opened: Open) -> None:
    first, second, third = lines(opened, ["Sequential.0 (Linear)", "Sequential.1 (GELU)"])
    caller = "called by: y = x @ w"
    assert {line.code for stack in [*first, *second, *third] for line in stack} == {
        "y = relu(x)", caller, f"Sequential.0 (Linear), Sequential.1 (GELU), {caller}",
    }  # fmt: skip
    assert {(line.file, line.line) for line in second[0] + third[0]} <= {("/src/model.py", 12), ("/src/model.py", 9)}


def test_many_modules_are_counted(opened: Open) -> None:
    found = lines(opened, [f"Sequential.{i} (Linear)" for i in range(1006)])
    assert any(", 1,002 more, called by: " in line.code for stacks in found for line in stacks[0])


def test_a_caller_whose_code_is_unknown_is_said_to_call_nothing() -> None:
    provenance = Provenance(0, [], [SiteProvenance(2, [], [], ["Dropout"])])
    found = model_lines(provenance, [1, 2], UserFrame("/src/model.py", 17, "forward", ""))
    assert [(line.line, line.code) for site in (1, 2) for line in found[site][0]] == [(17, ""), (17, "Dropout")]


def test_the_caller_is_the_last_frame_that_is_not_of_torch() -> None:
    user = UserFrame("/home/me/torch/train.py", 3, "main", "model(x)")
    inner = [
        UserFrame(f"/x/site-packages/torch/{name}", 1, "f", "") for name in ("nn/modules/module.py", "_dynamo/a.py")
    ]
    assert caller_of([UserFrame("/a.py", 1, "<module>", "main()"), user, *inner]) == user
    assert caller_of(inner) is None
    assert SourceLine(user.file, user.line, user.function, user.code).line == 3
