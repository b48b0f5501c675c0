"""Backward functions that ignore the gradient which they get, and those that need none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, calls, graph, run

Open = Callable[[LogBuilder | bytes], Trace]
FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[8, 4][4, 1]cpu",
    ):
        # File: /src/model.py:31 in forward, code: y = Cube.apply(x)
        exp: "f32[8, 4][4, 1]cpu" = torch.ops.aten.exp.default(primals_1)

        # File: /src/model.py:{line} in {function}, code: return 3 * x.square()
        made: "f32[8, 4][4, 1]cpu" = torch.ops.aten.{made}

        # File: /src/model.py:31 in forward, code: y = Cube.apply(x)
        mm: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(made, primals_1);  made = primals_1 = None
        return (
            exp,  # PlainAOTOutput(idx=0)
            mm,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        mm: "f32[4, 4][4, 1]cpu",
        tangents_1: "{tangent}",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        # File: /src/model.py:33 in forward, code: return self.out(h)
        mul: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mul.Tensor(mm, tangents_1);  tangents_1 = None
        return (
            {result},  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
            mul,  # GradAOTOutput(grad_of=PlainAOTInput(idx=1))
        )
"""
WHOLE, NUMBER = "f32[8, 4][4, 1]cpu", "f32[][]cpu"


def found(opened: Open, *, tangent: str, function: str, made: str, result: str) -> list[tuple[str, int]]:
    log = LogBuilder().record(run())
    ids: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    texts = {"aot_forward_graph": FORWARD, "aot_backward_graph": BACKWARD}
    for event, text in texts.items():
        text = text.replace("{tangent}", tangent).replace("{result}", result).replace("{made}", made)
        log.torch(event, None, text.replace("{line}", "19").replace("{function}", function).encode(), **ids)
    log.record(graph(0, phase="backward", compile_id="0/0", aot_id="0_backward"))
    log.record(calls(0, 0, 10**15))
    findings = all_findings(opened(log.record(End("exit", 1))))
    return [(one.severity, one.source.line if one.source else 0) for one in findings if one.kind == "ignored_gradient"]


@pytest.mark.parametrize(
    ("tangent", "function", "made", "result", "told"),
    [
        (WHOLE, "backward", "square.default(exp)", "mm", [("warning", 19)]),
        (NUMBER, "backward", "square.default(exp)", "mm", [("info", 19)]),
        (WHOLE, "backward", "square.default(exp)", "mul", []),
        (WHOLE, "forward", "square.default(exp)", "mm", []),
        (WHOLE, "backward", "full.default([8, 4], 1)", "mm", []),
        (WHOLE, "backward", "square.default(exp)", "tangents_1", []),
    ],
)
def test_gradients_without_the_given_one(
    opened: Open, tangent: str, function: str, made: str, result: str, told: list[tuple[str, int]]
) -> None:
    assert found(opened, tangent=tangent, function=function, made=made, result=result) == told
