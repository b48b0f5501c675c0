"""Reproducers of synthetic logs: what is written for each kind of launch, and that a log cannot write code into it."""

from __future__ import annotations

import ast
import json
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from stepscope.tracer.schema.graphs import Argument, LaunchKind, LaunchSite
from stepscope.tracer.schema.launches import Calls, Launches, TensorMeta, Tensors, TunedKernels
from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.kernel_source.symbol_sizes import Sizes
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.repro.launch_code import parse
from stepscope.viewer.repro.script import literal
from stepscope.viewer.repro.write import launch_in_step, write_reproducer
from stepscope.viewer.store.open import open_trace
from tests.logs import synthetic

TRITON_SOURCE = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.pointwise(
    size_hints={'x': 128},
    filename=__file__,
    triton_meta={'signature': {'in_out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'},
                 'device': DeviceProperties(type='cuda', index=3, multi_processor_count=132, cc=90)},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'fused', 'mutated_arg_names': ['in_out_ptr0']},
    min_elem_per_thread=0
)
@triton.jit
def fused(in_out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
"""
CANARY = "hostile_canary"
NASTY = "'''\n\"\"\"\nimport os; os.system('hostile_canary')\n\\' {x} \u2028 # r'''"


def wrapper(definition: str, *lines: str) -> str:
    """A wrapper whose launch is the last of `lines`; `launch_line` says which line of the text that is."""
    body = textwrap.indent("\n".join(("arg0_1, arg1_1 = args", *lines)), "    ")
    return f"# AOT ID: ['0_forward']\nimport torch\n\n{definition}\n\ndef call(args):\n{body}\n    return ()\n"


def write_log(
    folder: Path, code: str, kernel: str, kind: LaunchKind, arguments: list[Argument],
    tensors: list[TensorMeta], outputs: list[str] | None = None, **run: Any,
) -> Path:  # fmt: skip
    """One launch of the last statement before the wrapper's return."""
    line = code.rstrip("\n").count("\n")
    site = LaunchSite(0, "call", line, kernel, kind, arguments, outputs or [])
    graph = replace(synthetic.graph(), functions=["call"], sites=[site], memory=[])
    log = synthetic.LogBuilder().record(synthetic.run(**run))
    log.torch("inductor_output_code", {"filename": "/tmp/x/cwrapper.py"}, code.encode(), frame_id=0, frame_compile_id=0)
    log.record(graph).record(Tensors(0, 0, 0, tensors))
    start = synthetic.MONOTONIC_NS
    calls = Calls([0], [0], [0], [0], [1], [None], [start], [900], [1], ["ok"])
    log.record(Launches(calls, [0], [start + 100], [start + 200]))
    return log.record(End("exit", start + 2_000)).write(folder / "x.log")


def script_of(log: Path, launch: int = 0) -> str:
    out = log.with_name("repro.py")
    with open_trace(log) as trace:
        write_reproducer(trace, launch, out, embed_bytes=1 << 20, force=True)
    return out.read_text("utf-8")


def tensor(argument: int, device: str = "cpu", **changes: Any) -> TensorMeta:
    return replace(TensorMeta(argument, "float32", [4, 8], [8, 1], device, 0, 128), **changes)


def value_of(script: str, name: str) -> Any:
    for node in ast.parse(script).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            return ast.literal_eval(node.value)
    raise AssertionError(name)


def functions(script: str) -> dict[str, str]:
    tree = ast.parse(script)
    return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


ARG = Argument("arg0_1", "inout", "arg0_1", "in_out_ptr0")


def triton_log(folder: Path, **tensor_changes: Any) -> Path:
    definition = f"fused = async_compile.triton('fused', '''{TRITON_SOURCE}''', device_str='cuda')"
    code = wrapper(definition, "stream3 = get_raw_stream(3)", "fused.run(arg0_1, 32, stream=stream3)")
    return write_log(folder, code, "fused", "triton", [ARG], [tensor(0, "cuda:3", **tensor_changes)])


def test_a_triton_launch_keeps_source_grid_and_metadata(tmp_path: Path) -> None:
    script = script_of(triton_log(tmp_path))
    assert value_of(script, "KERNEL_SOURCE") == TRITON_SOURCE
    made = functions(script)
    assert "return kernel.run(a[0], 32, stream=stream)" in made["launch"]
    assert "compiler.triton('fused', source_here(KERNEL_SOURCE), device_str='cuda')" in made["make_kernel"]
    spec = value_of(script, "SPEC")
    assert spec["storages"] == [{"bytes": 128, "device": "cuda:3", "written": True, "uninitialised": False}]
    assert "RUNS CODE FROM A LOG" in ast.get_docstring(ast.parse(script), clean=False)  # type: ignore[operator]
    assert "triton and a device" in script


@pytest.mark.parametrize(
    ("info", "config"),
    [
        ({"best_config": [["XBLOCK", 64], ["num_warps", 2]], "num_configs": 2}, {"XBLOCK": 64, "num_warps": 2}),
        ({"only_config": [["XBLOCK", 128]]}, {"XBLOCK": 128}),
        ({"autotune_cache_state": "miss", "num_configs": 2}, {}),
        ({"best_config": [["__import__('os')", 1]]}, {}),
        ({"best_config": [["XBLOCK", "64"]]}, {}),
        ({"best_config": 3}, {}),
        ([], {}),
    ],
)
def test_the_configuration_that_was_tuned_is_kept(tmp_path: Path, info: Any, config: dict[str, int]) -> None:
    log = triton_log(tmp_path)
    more = synthetic.LogBuilder().artifact(
        "triton_kernel_info", orjson.dumps({"fused": info}), frame_id=0, frame_compile_id=0
    )
    log.write_bytes(log.read_bytes() + more.data)
    assert value_of(script_of(log), "SPEC")["config"] == config


@pytest.mark.parametrize(
    ("told", "config"),
    [
        ({"XBLOCK": 32, "num_warps": 8}, {"XBLOCK": 32, "num_warps": 8}),
        ({}, {"XBLOCK": 64}),
        ({"a b": 1}, {"XBLOCK": 64}),
        ({"XBLOCK": 2**40}, {"XBLOCK": 64}),
    ],
)
def test_the_configuration_that_it_ran_with_counts_most(
    tmp_path: Path, told: dict[str, int], config: dict[str, int]
) -> None:
    log = triton_log(tmp_path)
    more = synthetic.LogBuilder().artifact(
        "triton_kernel_info", orjson.dumps({"fused": {"only_config": [["XBLOCK", 64]]}}),
        frame_id=0, frame_compile_id=0,
    )  # fmt: skip
    more.record(TunedKernels(0, ["other", "fused"], [{"XBLOCK": 1}, told]))
    log.write_bytes(log.read_bytes() + more.data)
    assert value_of(script_of(log), "SPEC")["config"] == config


@pytest.mark.parametrize(
    ("kernels", "configs"),
    [(["fused"], []), (["fused"], [{"XBLOCK": 2**70}]), (["fused"], [{"XBLOCK": [[]]}]), (["fused"], [3])],
)
def test_a_broken_record_of_configurations_is_counted(tmp_path: Path, kernels: list[str], configs: list[Any]) -> None:
    log = triton_log(tmp_path)
    body = {"graph": 0, "kernel": kernels, "config": configs}
    more = synthetic.LogBuilder().artifact("stepscope_tuned_kernels", json.dumps(body).encode())
    log.write_bytes(log.read_bytes() + more.data)
    with open_trace(log) as trace:
        assert problem_counts(trace) == {"broken_payload": 1}
    assert value_of(script_of(log), "SPEC")["config"] == {}


def test_a_kernel_with_the_configuration_gets_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wanted = ("has", "pinned")
    tree = ast.parse(script_of(triton_log(tmp_path)))
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    names: dict[str, Any] = {}
    exec(compile(tree, "script", "exec"), names)
    launchers = [
        SimpleNamespace(config=SimpleNamespace(kwargs={"XBLOCK": size}, num_warps=4, num_stages=1))
        for size in (64, 128)
    ]
    made: Any = SimpleNamespace(launchers=[], precompile=lambda: made.launchers.extend(launchers))
    assert names["pinned"](made, {"XBLOCK": 128, "num_warps": 4}).launchers == launchers[1:]
    other = SimpleNamespace(launchers=launchers)
    assert names["pinned"](other, {"XBLOCK": 128, "num_warps": 8}).launchers == launchers
    assert "tuned anew" in capsys.readouterr().out
    assert names["pinned"](print, {"XBLOCK": 128}) is print
    assert names["pinned"](print, {}) is print


def test_strides_offsets_and_storages_are_those_of_the_log(tmp_path: Path) -> None:
    code = wrapper("", "extern_kernels.mm(arg0_1, reinterpret_tensor(arg1_1, (8, 4), (1, 8), 3), out=arg1_1)")
    view = "reinterpret_tensor(arg1_1, (8, 4), (1, 8), 3)"
    arguments = [
        Argument("arg0_1", "in", "arg0_1"), Argument(view, "in", "arg1_1"),
        Argument("arg1_1", "out", "arg1_1", "out"),
    ]  # fmt: skip
    tensors = [
        tensor(0, storage=7),
        tensor(1, size=[8, 4], stride=[1, 8], offset=3, storage_bytes=400, storage=9),
        tensor(2, dtype="float16", offset=5, storage_bytes=400, storage=9),
    ]
    script = script_of(write_log(tmp_path, code, "extern_kernels.mm", "extern", arguments, tensors))
    assert "return kernel(a[0], a[1], out=a[2])" in functions(script)["launch"]
    spec = value_of(script, "SPEC")
    assert [storage["bytes"] for storage in spec["storages"]] == [128, 400]
    placed = [argument["tensors"][0] for argument in spec["arguments"]]
    assert [at["storage"] for at in placed] == [0, 1, 1]
    assert [(at["size"], at["stride"], at["offset"]) for at in placed] == [
        ([4, 8], [8, 1], 0), ([8, 4], [1, 8], 3), ([4, 8], [8, 1], 5),
    ]  # fmt: skip
    assert spec["made_up"] == [
        "arg0_1: standard normal values, because the log has no statistics of it",
        f"{view}: standard normal values, because the log has no statistics of it",
    ]


@pytest.mark.parametrize(
    "check",
    ["size_stride(arg0_1, (2*s0, 8), (8, 1), 'input')", "tensor_metadata(arg0_1, (2*s0, 8), (8, 1), torch.float32)",
     "size_stride_grouped((arg1_1, arg0_1), ((), (2*s0, 8)), ((), (8, 1)), 'input')"],
)  # fmt: skip
def test_sizes_that_the_wrapper_computes_are_put_in(tmp_path: Path, check: str) -> None:
    definition = f"fused = async_compile.triton('fused', '''{TRITON_SOURCE}''', device_str='cuda')"
    lines = (
        "s0 = arg1_1", f"assert_{check}", "fused_xnumel = 16*s0",
        "fused.run(arg0_1, s0, fused_xnumel, (-1) + s0, stream=stream0)",
    )  # fmt: skip
    log = write_log(tmp_path, wrapper(definition, *lines), "fused", "triton", [ARG], [tensor(0)])
    script = script_of(log)
    assert "return kernel.run(a[0], 2, 32, 1, stream=stream)" in functions(script)["launch"]
    assert "s0 was 2" in value_of(script, "SPEC")["notes"]


@pytest.mark.parametrize(
    ("expression", "number"),
    [("s0", 6), ("s0 // 4", 1), ("max(1, s0 % 4)", 2), ("other", 7), ("u0", None), ("s0 // 0", None), ("f(s0)", None),
     ("s0 ** 9", 6**9), ("s0 ** 99", None), ("again", None)],
)  # fmt: skip
def test_sizes(expression: str, number: int | None) -> None:
    text = "def call(args):\n    buf0 = empty_strided_cpu((s0, 3), (3, 1), torch.float32)\n    other = s0 + 1\n"
    (function,) = parse(text + "    again = again\n").body
    assert isinstance(function, ast.FunctionDef)
    found = Sizes(function, {"buf0": ([6, 3], [3, 1])})
    assert found.value(ast.parse(expression, mode="eval").body) == number


@pytest.mark.parametrize(
    "source",
    [NASTY, "", "\\", "'''", '"""', "a'", "r'''\\'''", "\r\n\0\f", "\ud800".encode("utf-8", "replace").decode()],
)
def test_any_source_is_a_literal_that_means_it(source: str) -> None:
    assert ast.literal_eval(literal(source)) == source


def test_texts_of_a_log_are_never_code(tmp_path: Path) -> None:
    """The same script as of a harmless log, but for what its literals say."""

    def log(folder: Path, name: str, source: str) -> Path:
        folder.mkdir()
        definition = f"fused = async_compile.cpp_pybinding(['float*'], {source!r})"
        view = f"reinterpret_tensor(arg0_1, {name!r})"
        arguments = [Argument(ast.unparse(ast.parse(view)), "inout", name, name, name)]
        code = wrapper(definition, f"fused({view})")
        run: dict[str, Any] = {"torch_version": name, "devices": [name], "argv": [name]}
        return write_log(folder, code, "fused", "cpp", arguments, [tensor(0)], **run)

    harmless = script_of(log(tmp_path / "a", "name", "void kernel() {}"))
    hostile = script_of(log(tmp_path / "b", NASTY, NASTY))
    assert value_of(hostile, "KERNEL_SOURCE") == NASTY
    assert CANARY in value_of(hostile, "SPEC")["arguments"][0]["name"]
    assert without_literals(hostile) == without_literals(harmless)
    assert all(CANARY not in line or line.startswith("#") or line.lstrip()[:1] in "'\"" for line in hostile.split("\n"))


def without_literals(script: str) -> str:
    tree = ast.parse(script)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("KERNEL_SOURCE", "SPEC"):
            ast.literal_eval(node.value)
            node.value = ast.Constant(None)
    return ast.unparse(tree)


LAUNCHES = {
    "a call": "fused(arg0_1, __import__('os').system('x'))",
    "an attribute": "fused(arg0_1, os.environ)",
    "a name": "fused(arg0_1, other)",
    "a lambda": "fused(arg0_1, lambda: 0)",
    "an f-string": "fused(arg0_1, f'{x}')",
    "a walrus": "fused((y := arg0_1))",
    "stars": "fused(*arg0_1)",
    "two stars": "fused(arg0_1, **other)",
    "a stream": "fused(arg0_1, stream=os.system('x'))",
    "a device": "fused(arg0_1, device(os.system('x')))",
    "a comprehension": "fused([x for x in arg0_1])",
    "another kernel": "evil(arg0_1)",
    "no call": "fused",
    "a subscript": "fused(arg0_1)[os.system('x')]",
    "a view": "buf0 = fused(arg0_1).view(os.system('x'))",
}


@pytest.mark.parametrize("launch", LAUNCHES)
def test_a_launch_that_is_more_than_arguments_is_refused(tmp_path: Path, launch: str) -> None:
    code = wrapper("fused = async_compile.cpp_pybinding(['float*'], 'void kernel() {}')", LAUNCHES[launch])
    log = write_log(tmp_path, code, "fused", "cpp", [ARG], [tensor(0)])
    refused(log, "value is not in the log|launches something else|has no launch of")


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [("torch.ops.load_library.__call__", "fallback"), ("torch.ops.aten.__class__.x", "fallback"),
     ("torch.ops.load_library", "fallback"), ("os.system", "fallback"), ("extern_kernels.__class__", "extern"),
     ("extern_kernels.mm.x", "extern"), ("torch.ops.a.b.c.d", "fallback"), ("os.system", "extern"),
     ("a\nb", "extern")],
)  # fmt: skip
def test_only_operators_are_called(tmp_path: Path, kernel: str, kind: LaunchKind) -> None:
    code = wrapper("", f"{kernel}(arg0_1)".replace("\n", ""))
    log = write_log(tmp_path, code, kernel, kind, [ARG], [tensor(0)])
    refused(log, "cannot be written as a script")


@pytest.mark.slow
def test_what_cannot_be_run_again_is_one_sentence(tmp_path: Path) -> None:
    log = synthetic.recorded(steps=1).write(tmp_path / "x.log")
    refused(log, "calls a part of the graph", launch=2)
    refused(log, "The log has no size of buf1", launch=1)
    refused(log, "There is no launch 99 in this trace", launch=99)
    refused(log, "There is no launch -1 in this trace", launch=-1)
    cases = [
        ("collective", "torch.ops._c10d_functional.all_reduce.default(arg0_1)", "cannot run", {}),
        ("fallback", "broken(", "is not valid Python", {}),
        ("cpp", "fused(arg0_1)", "does not hold the source of fused", {}),
        ("cpp", "fused(arg0_1)", "quint8 on cpu, which cannot be written", {"dtype": "quint8"}),
        ("cpp", "fused(arg0_1)", "invalid size or stride", {"stride": [-8, 1]}),
        ("cpp", "fused(arg0_1)", "exceeds any memory", {"size": [1 << 40, 1 << 20]}),
        ("cpp", "fused(arg0_1)", "which cannot be written", {"device": "cpu'); evil("}),
    ]
    for number, (kind, launch, sentence, changes) in enumerate(cases):
        kernel = launch.partition("(")[0]
        log = write_log(tmp_path / str(number), wrapper("", launch), kernel, kind, [ARG], [tensor(0, **changes)])  # type: ignore[arg-type]
        refused(log, sentence)


def test_a_launch_is_named_by_its_place_in_a_step(tmp_path: Path) -> None:
    log = synthetic.recorded(steps=3).write(tmp_path / "x.log")
    with open_trace(log) as trace:
        assert launch_in_step(trace, 2, 2, None) == 4 + 8 + 1  # step 1 has two calls of 4 launches
        for ordinal, step, said in ((0, 2, "0th"), (5, 2, "5th"), (1, 3, "1st")):
            with pytest.raises(StepscopeError, match=f"no {said} launch in step {step}"):
                launch_in_step(trace, ordinal, step, None)
    with open_trace([str(log), str(synthetic.recorded(steps=2, rank=1).write(tmp_path / "y.log"))]) as both:
        with pytest.raises(StepscopeError, match="choose one with --rank"):
            launch_in_step(both, 1, 0, None)
        assert launch_in_step(both, 1, 0, 1) == launch_in_step(both, 1, 1, 1) - 4


def refused(log: Path, sentence: str, launch: int = 0) -> None:
    out = log.with_name("repro.py")
    with open_trace(log) as trace, pytest.raises(StepscopeError, match=sentence) as error:
        write_reproducer(trace, launch, out, embed_bytes=0)
    assert "\n" not in str(error.value)
    assert not out.exists()
