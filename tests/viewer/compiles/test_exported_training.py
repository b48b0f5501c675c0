"""Exported programs that behave as in training are told from their graphs; those exported in eval mode are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stepscope.tracer.schema.launches import Calls, Launches
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.compiles.queries.exported_training import calls
from stepscope.viewer.findings import all_findings
from stepscope.viewer.graphs.queries.dynamo_nodes import functions
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, graph, run

pytestmark = pytest.mark.filterwarnings("ignore")
Open = Callable[[LogBuilder], Trace]
STACKS = "inductor_provenance_tracking_kernel_stack_traces"
DROPOUT = "/venv/lib/python3.11/site-packages/torch/nn/modules/dropout.py"
IN_MODULE = f"# File: {DROPOUT}:73 in forward, code: return F.dropout(input, self.p, self.training, self.inplace)"


class Model(nn.Module):
    def __init__(self, layer: nn.Module, function: Callable[[Any], Tensor] = lambda x: x) -> None:
        super().__init__()
        self.layer, self.function = layer, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.layer(x)) + 1


def found(model: nn.Module, *, strict: bool = False, decomposed: bool = False, trains: bool = True) -> list[str]:
    program = torch.export.export(model.train(trains), (torch.ones(4, 2, 8),), strict=strict)
    program = program.run_decompositions() if decomposed else program
    text = program.graph_module.print_readable(print_output=False, include_stride=True, include_device=True)
    return [name for name, _ in calls(functions(text))]


LAYERS = [
    (nn.Dropout(0.2), "dropout"),
    (nn.AlphaDropout(0.2), "alpha_dropout"),
    (nn.Dropout1d(0.2), "feature_dropout"),
    (nn.BatchNorm1d(2), "batch_norm"),
    (nn.Sequential(nn.BatchNorm1d(2, affine=False)), "batch_norm"),
    (Model(nn.LSTM(8, 8, 2, dropout=0.3), lambda pair: pair[0]), "lstm"),
    (Model(nn.Identity(), lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)),
     "scaled_dot_product_attention"),
]  # fmt: skip


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("layer", "name"), LAYERS)
def test_layers_in_training_mode(layer: nn.Module, name: str, strict: bool) -> None:
    assert found(Model(layer), strict=strict) == [name]


@pytest.mark.parametrize(("layer", "name"), [(nn.Dropout(0.2), "dropout"), (nn.BatchNorm1d(2), "batch_norm")])
def test_decomposed_layers(layer: nn.Module, name: str) -> None:
    assert found(Model(layer), decomposed=True) == [name]
    assert found(Model(layer), decomposed=True, trains=False) == []


@pytest.mark.parametrize("layer", [layer for layer, name in LAYERS if name != "scaled_dot_product_attention"])
def test_layers_in_eval_mode(layer: nn.Module) -> None:
    assert found(Model(layer), trains=False) == []


@pytest.mark.parametrize("layer", [
    nn.Dropout(0.0), nn.BatchNorm1d(2, track_running_stats=False), nn.InstanceNorm1d(2),
    Model(nn.LSTM(8, 8, 1), lambda pair: pair[0]), Model(nn.LSTM(8, 8, 2), lambda pair: pair[0]),
])  # fmt: skip
def test_layers_that_do_the_same_in_both_modes(layer: nn.Module) -> None:
    assert found(Model(layer)) == []


def text_of(*statements: str) -> bytes:
    lines = "\n".join(f"        {line}" for line in statements)
    return f'class GraphModule(torch.nn.Module):\n    def forward(self, x: "f32[4, 8]"):\n{lines}\n'.encode()


def package(log: LogBuilder, graph_text: bytes, stacks: dict[str, list[str]], line: int = 7, **ids: Any) -> LogBuilder:
    stack = [{"line": line, "name": "build", "filename": 1, "loc": "aoti_compile_and_package(program)"},
             {"line": 153, "name": "aoti_compile_and_package", "filename": 2, "loc": ""}]  # fmt: skip
    header: dict[str, Any] = {**ids} if ids else {"stack": stack}
    log.artifact("before_pre_grad_graph", graph_text, "string", **header)
    dump = {"name": "inductor_aot_wrapper_code", "type": "cpp", "filename": "/tmp/w.cpp"}
    return log.torch("graph_dump", dump, b"int a;", **ids).artifact(STACKS, orjson.dumps(stacks), **ids)


def begun() -> LogBuilder:
    log = LogBuilder().record(run()).torch("str", ["/src/build.py", 1])
    return log.torch("str", ["/venv/lib/python3.11/site-packages/torch/_inductor/__init__.py", 2])


def stack_of(line: int) -> str:
    return (
        f'File "/src/model.py", line {line}, in forward\n    h = self.drop(x)\n'
        f'  File "{DROPOUT}", line 73, in forward\n    return F.dropout(input, self.p, self.training, self.inplace)'
    )


def told(trace: Trace) -> list[Any]:
    return [one for one in all_findings(trace) if one.kind == "exported_training"]


ACTIVE = 'dropout: "f32[4, 8]" = torch.ops.aten.dropout.default(x, 0.2, True);  x = None'
IDLE = ACTIVE.replace("True", "False")


def test_a_package_names_the_line_of_the_model(opened: Open) -> None:
    log = package(begun(), text_of(IN_MODULE, IDLE), {"cpp_fused_0:1": [stack_of(3)]}, line=5)
    package(log, text_of(IN_MODULE, ACTIVE), {"cpp_fused_0:1": [stack_of(9)]})
    (finding,) = told(opened(log))
    assert finding.severity == "warning"
    assert finding.title.startswith(
        "The package that is compiled at build.py:7 drops values at random (dropout, model.py:9)"
    )
    assert (finding.source.file, finding.source.line) == ("/src/model.py", 9)
    assert finding.page == "/compile/-?log=0"
    assert len(finding.proof) == 1
    assert "model.eval() before torch.export.export()" in finding.proof[0]


@pytest.mark.parametrize(("code", "advice"), [
    ("return F.dropout(h, 0.5)", "no effect on F.dropout()"),
    ("return F.dropout(self.layer(h))", "no effect on F.dropout()"),
    ("return F.dropout(h, 0.5, self.training)", "was in training mode"),
    ("return self.drop(h)", "was in training mode"),
    ("return F.dropout(", "Call model.eval()"),
    ("return F.dropout(h, 0.5, flag)", "Call model.eval()"),
])  # fmt: skip
def test_the_advice_follows_from_the_line(opened: Open, code: str, advice: str) -> None:
    line = f"# File: /src/model.py:9 in forward, code: {code}"
    (finding,) = told(opened(package(begun(), text_of(line, ACTIVE), {})))
    assert advice in finding.proof[0]
    assert finding.source.line == 9


@pytest.mark.parametrize(
    "in_eval",
    [
        IDLE.replace("dropout:", "other:"),
        'norm: "f32[4, 8]" = torch.ops.aten.batch_norm.default(x, w, b, mean, var, False, 0.1, 1e-05, True);  x = None',
    ],
)
def test_one_module_in_training_mode_may_be_meant(opened: Open, in_eval: str) -> None:
    (finding,) = told(opened(package(begun(), text_of(IN_MODULE, f"{ACTIVE}\n        {in_eval}"), {})))
    assert finding.severity == "info"
    assert "as for Monte Carlo dropout" in finding.proof[0]


def test_a_package_of_a_strict_export_has_its_own_compile(opened: Open) -> None:
    """PyTorch writes no stack of the caller then."""
    ids: Any = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    line = "# File: /src/model.py:9 in forward, code: return self.drop(h)"
    (finding,) = told(opened(package(begun(), text_of(line, ACTIVE), {}, **ids)))
    assert finding.title.startswith("A package drops values at random (dropout, model.py:9)")
    assert finding.page == "/compile/0_0?log=0"


def test_a_dropout_on_purpose_is_none(opened: Open) -> None:
    line = "# File: /src/model.py:9 in forward, code: return F.dropout(h, 0.5, training=True)"
    assert told(opened(package(begun(), text_of(line, ACTIVE), {}))) == []


@pytest.mark.parametrize(("phase", "severities"), [("inference", ["info"]), ("forward", [])])
def test_a_graph_that_torch_compile_made_of_an_exported_program(
    opened: Open, phase: str, severities: list[str]
) -> None:
    log = begun()
    ids: Any = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
    log.torch("dynamo_output_graph", {"sizes": {}}, text_of(IN_MODULE, ACTIVE), **ids)
    log.artifact(STACKS, orjson.dumps({"cpp_fused_0:1": [stack_of(9)]}), **ids)
    log.record(graph(0, compile_id="0/0", aot_id=f"0_{phase}", phase=phase))
    begin = MONOTONIC_NS + 1_000_000_000
    log.record(Launches(Calls([0], [0], [0], [0], [1], [None], [begin], [1000], [1], ["ok"]), [0], [begin], [begin]))
    findings = told(opened(log.record(End("exit", MONOTONIC_NS + 2_000_000_000))))
    assert [one.severity for one in findings] == severities
    assert all("graph 0 drops values at random (dropout, model.py:9)" in one.title for one in findings)


def test_a_graph_that_is_no_package_is_not_told_of(opened: Open) -> None:
    assert told(opened(begun().artifact("before_pre_grad_graph", text_of(IN_MODULE, ACTIVE), "string"))) == []
