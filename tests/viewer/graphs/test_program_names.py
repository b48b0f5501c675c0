"""The names that the program gives to the inputs and outputs of graphs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.graphs.queries.program_names import in_wrapped_module, program_expression, program_names
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.viewer.conftest import sample_logs

Open = Callable[[LogBuilder | bytes], Trace]
Names = dict[str, tuple[str | None, str | None]]

MANGLED = "L_self_modules_layers_modules_3_parameters_weight_"
DYNAMO = f"""class GraphModule(torch.nn.Module):
    def forward(self, s77: "Sym(s77)", L_x_: "f32[s77, 16][16, 1]cpu", {MANGLED}: "f32[16, 16][16, 1]cpu"):
        l_x_ = L_x_
"""
FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "Sym(s0)",  # PlainAOTInput(idx=0)
        primals_2: "f32[s0, 16][16, 1]cpu",  # PlainAOTInput(idx=1)
        primals_3: "f32[16, 16][16, 1]cpu",  # PlainAOTInput(idx=2)
    ):
        mm: "f32[s0, 16]" = torch.ops.aten.mm.default(primals_2, primals_3)
        return (
            mm,  # PlainAOTOutput(idx=0)
            primals_3,  # SavedForBackwardsAOTOutput(idx=0)
            sin,  # SavedForBackwardsAOTOutput(idx=1)
        )
"""
BACKWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "Sym(s0)",  # PlainAOTInput(idx=0)
        primals_3: "f32[16, 16][16, 1]cpu",  # PlainAOTInput(idx=2)
        sin: "f32[s0, 16][16, 1]cpu",
        tangents_1: "f32[s0, 16][16, 1]cpu",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        return (
            None,  # GradAOTOutput(grad_of=PlainAOTInput(idx=0))
            None,  # GradAOTOutput(grad_of=PlainAOTInput(idx=1))
            mm_1,  # GradAOTOutput(grad_of=PlainAOTInput(idx=2))
        )
"""
CODE = """# AOT ID: ['0_{phase}']
def partition_0(args):
    other_1, = args
    return (other_1, )

def call(self, args):
    {inputs} = args
    args.clear()
    return ({outputs}, )

def benchmark_compiled_module(times=10, repeat=10):
    return (wrong, )
"""
WEIGHT = "L['self']._modules['layers']._modules['3']._parameters['weight']"
IDS: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}


def log_of(*graphs: tuple[str, str, str], described: bool = True, dynamo: str = DYNAMO, aot: str = "") -> LogBuilder:
    """Return PyTorch's log of one compile; `graphs` are (phase, inputs, outputs) of generated code."""
    log = LogBuilder()
    log.torch("dynamo_start", {"stack": []}, **IDS)
    if described:
        for number, source, is_parameter in ((0, "L['x']", False), (1, WEIGHT, True)):
            log.torch("describe_tensor", {"id": number, "describer_id": 0, "is_parameter": is_parameter}, **IDS)
            log.torch("describe_source", {"id": number, "describer_id": 0, "source": source}, **IDS)
    log.torch("dynamo_output_graph", {"sizes": {}}, dynamo.encode(), **IDS)
    texts = {"forward": aot or FORWARD, "backward": BACKWARD, "inference": aot}
    for phase, _, _ in graphs:
        log.torch(f"aot_{phase}_graph", {}, texts[phase].encode(), **IDS)
    for number, (phase, inputs, outputs) in enumerate(graphs):
        code = CODE.format(phase=phase, inputs=inputs, outputs=outputs)
        log.torch("inductor_output_code", {"filename": f"/x/c{number}.py"}, code.encode(), **IDS)
    return log


def names(trace: Trace, graph: int = 0) -> Names:
    return {name: (known.name, known.kind) for name, known in program_names(trace, graph).items()}


WHOLE = ("forward", "primals_1, primals_2, primals_3", "buf1, primals_3, buf0")
PARAMETER = ("self.layers.3.weight", "parameter")


def test_inputs_of_a_forward_graph_have_the_names_of_the_program(opened: Open) -> None:
    assert names(opened(log_of(WHOLE))) == {
        "primals_1": (None, "size"),
        "primals_2": ("x", "input"),
        "primals_3": PARAMETER,
        "buf1": ("output 0", "output"),
        "buf0": (None, "saved"),
    }


def test_a_backward_graph_keeps_the_names_and_knows_gradients(opened: Open) -> None:
    backward = ("backward", "primals_1, primals_3, sin, tangents_1", "None, None, reinterpret_tensor(buf4, (16, 16))")
    assert names(opened(log_of(WHOLE, backward)), 1) == {
        "primals_1": (None, "size"),
        "primals_3": PARAMETER,
        "sin": (None, "saved"),
        "tangents_1": ("gradient of output 0", "gradient"),
        "buf4": ("gradient of self.layers.3.weight", "gradient"),
    }


def test_kinds_that_the_log_does_not_tell_stay_unknown(opened: Open) -> None:
    found = names(opened(log_of(WHOLE, described=False)))
    assert found["primals_2"] == ("x", None)
    assert found["primals_3"] == (None, None)


def test_numbers_are_believed_only_if_the_inputs_may_be_the_same(opened: Open) -> None:
    other = FORWARD.replace("f32[16, 16][16, 1]cpu", "f32[16, 17][17, 1]cpu")
    found = names(opened(log_of(WHOLE, aot=other)))
    assert found["primals_2"] == found["primals_3"] == (None, None)
    assert found["buf1"] == ("output 0", "output")


@pytest.mark.parametrize(("inputs", "known"), [("arg0_1, arg1_1, arg2_1", True), ("arg0_1, arg1_1", False)])
def test_positions_name_inputs_only_if_none_is_missing(opened: Open, inputs: str, known: bool) -> None:
    graph = f"class <lambda>(torch.nn.Module):\n    def forward(self, {inputs}):\n        return (mm,)\n"
    found = names(opened(log_of(("inference", inputs, "buf0"), aot=graph)))
    assert found["arg1_1"] == (("x", "input") if known else (None, None))


def test_two_graphs_of_one_phase_number_inputs_of_their_own(opened: Open) -> None:
    found = names(opened(log_of(WHOLE, WHOLE)))
    assert found["primals_3"] == (None, None)


def test_a_graph_that_runs_as_dynamo_made_it_has_its_names(opened: Open) -> None:
    log = log_of()
    head = f"def forward(self, s77 : torch.SymInt, L_x_ : torch.Tensor, {MANGLED} : torch.nn.Parameter):"
    code = f"{head}\n    l_x_ = L_x_\n"
    log.torch("inductor_output_code", {"filename": "/x/c0.py"}, code.encode(), **IDS)
    found = names(opened(log))
    assert found["L_x_"] == found["l_x_"] == ("x", "input")
    assert found[MANGLED] == PARAMETER


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("L['args'][0]", "args[0]"),
        ("L['kwargs']['input_ids']", "kwargs['input_ids']"),
        ("L['self']._modules['norm']._buffers['running_mean']", "self.norm.running_mean"),
        ("G['scale']", "scale"),
        ("G['__import___main__'].keep['a'][0]", "keep['a'][0]"),
        ("G['__import_pack_dot_data'].mean", "pack.data.mean"),
        ("L['x'].size()[1]", "x.size(1)"),
        ("L['___stack0']", "stack value 0 of the graph break"),
    ],
)
def test_expressions_read_as_the_program_writes_them(source: str, said: str) -> None:
    assert program_expression(source) == said


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/x/site-packages/torch/_dynamo/external_utils.py", "self.2.weight of fn"),
        ("/src/model.py", "fn.2.weight of fn"),
        (None, "fn.2.weight of fn"),
    ],
)
def test_parts_of_a_module_that_dynamo_compiles_through_a_function(file: str | None, said: str) -> None:
    assert in_wrapped_module(file, "fn.2.weight of fn") == said


@pytest.mark.skipif(sample_logs() is None, reason="the sample logs are not here")
def test_names_in_logs_of_older_versions_of_pytorch(opened: Open) -> None:
    folder = sample_logs()
    assert folder is not None
    with open_trace(Path(folder) / "simple.log") as trace:
        assert names(trace)["arg0_1"] == ("x", "input")
    with open_trace(Path(folder) / "inductor_provenance_jit_cuda_log.txt") as trace:
        known = names(trace)
    assert known["arg0_1"] == ("self.fc1.weight", "parameter")
    assert known["arg5_1"] == ("c", "input")
