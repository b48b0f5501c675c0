"""Operators that get one tensor where the program passes two, and those that the program gives one tensor twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.tracer.schema.graphs import Argument, Graph, LaunchSite, Provenance, SiteProvenance
from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End, Frame
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, compile_records, run

Open = Callable[[LogBuilder | bytes], Trace]
DYNAMO = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[8][1]cpu", L_y_: "f32[8][1]cpu"):
        l_x_ = L_x_
        l_y_ = L_y_

        # File: /src/model.py:11 in forward, code: before = x.clone()
        {before}

        # File: /src/model.py:12 in forward, code: scan(before, x)
        {call}
        return (l_x_,)
"""
CLONE = 'before: "f32[8][1]cpu" = l_x_.clone()'
CALL = "scan_default = torch.ops.own.scan.default({});  before = scan_default = None"


def found(opened: Open, before: str, call: str, *, has_graph: bool = True, line: int = 12) -> list[Finding]:
    log = LogBuilder().record(run())
    compile_records(log)
    here = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    if has_graph:
        log.torch("dynamo_output_graph", {"sizes": {}}, DYNAMO.format(before=before, call=call).encode(), **here)
    arguments = [Argument("arg0_1", "in", "arg0_1", "src"), Argument("arg0_1", "inout", "arg0_1", "out")]
    site = LaunchSite(0, "call", 3, "torch.ops.own.scan.default", "fallback", arguments, [])
    log.record(Graph(0, "cwrapper", "0/0", "0_inference", "inference", False, False, ["call"], [site], []))
    frames = [Frame("/src/model.py", line, "forward", "scan(before, x)")]
    log.record(Provenance(0, frames, [SiteProvenance(0, [[0]], ["own.scan"])]))
    columns = Calls([0], [0], [0], [0], [1], [None], [6_000_000_000], [900], [1], ["ok"])
    log.record(Launches(columns, [0], [6_000_000_100], [6_000_000_200])).record(End("exit", 7_000_000_000))
    return [finding for finding in all_findings(opened(log)) if finding.kind == "storage_overlap"]


@pytest.mark.parametrize(
    ("before", "arguments", "passed", "parameter"),
    [
        (CLONE, "before, l_x_", "before", "src"),
        (CLONE, "out = l_x_, src = before", "before", "src"),
        (CLONE, "before, out = l_x_", "before", "src"),
        (CLONE, "l_x_, before", "before", "out"),
        ('before: "f32[8][1]cpu" = torch.empty_like(l_x_)', "l_x_, before", "before", "out"),
        ('before: "f32[8][1]cpu" = l_x_ * 2', "before, l_x_", "before", "src"),
        (f'{CLONE}\n        v: "f32[8][1]cpu" = before.view(8)', "v, l_x_", "before", "src"),
    ],
)
def test_one_tensor_where_the_program_passes_two(
    opened: Open, before: str, arguments: str, passed: str, parameter: str
) -> None:
    (finding,) = found(opened, before, CALL.format(arguments))
    assert finding.severity == "critical"
    assert finding.title == (
        "scan (model.py:12) gets arg0_1 both as src and as out, which it changes, although the program passes"
        " two tensors"
    )
    assert finding.source is not None
    assert (finding.source.file, finding.source.line) == ("/src/model.py", 12)
    assert finding.proof[0] == f"The program passes {passed} (model.py:11), which has memory of its own, as {parameter}"


@pytest.mark.parametrize(
    ("before", "call"),
    [
        (CLONE, CALL.format("l_x_, l_x_")),
        (CLONE, CALL.format("before, before")),
        (CLONE, CALL.format("l_y_, l_x_")),
        ('before: "f32[8][1]cpu" = l_x_.view(8)', CALL.format("before, l_x_")),
        ('before: "f32[8][1]cpu" = l_x_.contiguous()', CALL.format("before, l_x_")),
        ('before: "f32[8][1]cpu" = l_x_.copy_(l_y_)', CALL.format("before, l_x_")),
        ('before: "f32[8][1]cpu" = torch.ops.own.make.default(l_x_)', CALL.format("before, l_x_")),
        (CLONE, CALL.format("[l_y_, before], l_x_")),
        (CLONE, f"{CALL.format('before, l_x_')}\n        {CALL.format('l_x_, l_x_').replace('_default =', '_1 =')}"),
        (CLONE, CALL.format("before, l_x_").replace("own.scan", "own.scanned")),
    ],
)
def test_one_tensor_that_the_program_may_pass_twice(opened: Open, before: str, call: str) -> None:
    assert found(opened, before, call) == []


@pytest.mark.parametrize(("call", "count"), [("before, l_x_", 1), ("l_x_, l_x_", 0)])
def test_code_from_a_cache_names_the_line_of_equal_code(opened: Open, call: str, count: int) -> None:
    assert len(found(opened, CLONE, CALL.format(call), line=5)) == count


def test_a_log_without_the_graph_of_dynamo(opened: Open) -> None:
    assert found(opened, CLONE, CALL.format("before, l_x_"), has_graph=False) == []
