"""Statements of generated wrappers that are easy to miss or to misread, each as Inductor writes it."""

from __future__ import annotations

import ast
import textwrap

import pytest

from stepscope.tracer.inductor.operators import operator_schema
from stepscope.tracer.wrapper.parsed import LaunchStatement, WrapperSource
from stepscope.tracer.wrapper.source import analyse

HEADER = """\
# AOT ID: ['0_inference']
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import extern_kernels
aten = torch.ops.aten
async_compile = AsyncCompile()
reinterpret_tensor = torch.ops.inductor._reinterpret_tensor
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
"""


def read(body: str, before: str = "") -> WrapperSource:
    """A wrapper whose `call` is `body`; `before` stands at module level."""
    text = "".join(textwrap.indent(textwrap.dedent(body).strip(), " " * 8))
    runner = f"class Runner:\n    def call(self, args):\n{text}\n        return (buf0, )\n"
    return analyse(HEADER + textwrap.dedent(before) + runner, operator_schema)


def only(source: WrapperSource) -> LaunchStatement:
    (launch,) = source.launches
    return launch


def arguments(launch: LaunchStatement) -> list[tuple[str, str, str | None]]:
    return [(argument.name, argument.role, argument.buffer) for argument in launch.site.arguments]


def memory(source: WrapperSource) -> list[tuple[str, str, str | None]]:
    return [(statement.event, statement.buffer, statement.of) for statement in source.memory]


def cpp(name: str, types: list[str], parameters: str) -> str:
    body = f'#include <c10/util/Half.h>\nextern "C"  void  kernel({parameters})\n{{\n}}\n'
    return f"{name} = async_compile.cpp_pybinding({types}, r'''\n{body}''')\n"


def test_g1_cpp_wrapper_is_known_as_one() -> None:
    source = analyse(
        HEADER
        + textwrap.dedent(
            """
            def _wrap_func(f):
                def g(args):
                    input_handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(args)
                    output_handles = f(input_handles)
                    return torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(output_handles)
                return g
            call = _wrap_func(inductor_entry)
            """
        )
    )
    assert source.cpp_wrapper
    assert source.launches == []


def test_g2_clone_of_a_loop_carry() -> None:
    launch = only(read("buf3[1] = buf0.clone()"))
    assert launch.site.kind == "copy"
    assert arguments(launch)[0] == ("buf0", "in", "buf0")
    assert launch.site.outputs == ["buf3[1]"]


def test_g3_subgraph_results_go_into_a_list() -> None:
    body = "(buf3[0], buf3[1]) = body_graph_0(body_graph_0_args)"
    launch = only(read(body, "def body_graph_0(args):\n    args.clear()\n    return ()\n"))
    assert launch.site.kind == "subgraph"
    assert launch.site.kernel == "body_graph_0"
    assert launch.site.outputs == ["buf3[0]", "buf3[1]"]
    assert [(a.role, a.buffer) for a in launch.site.arguments[-2:]] == [("out", "buf3"), ("out", "buf3")]


def test_g4_lists_hold_what_is_put_into_them() -> None:
    source = read(
        """
        buf2 = [None] * 2
        buf2[0] = buf1
        body_args = [buf2, primals_2]
        """
    )
    assert source.launches == []
    assert source.unknown == []
    held = [(buffer, of) for event, buffer, of in memory(source) if event == "hold"]
    assert held == [("buf2", "buf1"), ("body_args", "buf2"), ("body_args", "primals_2")]


@pytest.mark.parametrize(
    "statement",
    ["if buf1.item():\n    pass", "while buf1.item():\n    pass", "u0 = buf1.item()", "u0 = 1 if buf1.item() else 0"],
)
def test_g5_a_value_the_host_waits_for_is_a_read(statement: str) -> None:
    source = read(statement)
    assert [(event, buffer) for event, buffer, _ in memory(source)] == [("read", "buf1")]
    assert source.unknown == []


@pytest.mark.parametrize(
    "check",
    ["size_stride(buf0, (u0, 8), (8, 1), 'x')", "tensor_metadata(buf0, (u0, 8), (8, 1), torch.float32, 'x')",
     "size_stride_grouped((arg0_1, buf0), ((), (u0, 8)), ((), (8, 1)), 'input')"],
)  # fmt: skip
def test_g6_sizes_checks_and_none_are_no_launches(check: str) -> None:
    source = read(
        f"""
        u0 = buf0.size(0)
        if not (u0 >= 0):
            raise RuntimeError('u0 >= 0')
        buf2 = None
        assert_{check}
        """
    )
    assert source.launches == []
    assert source.unknown == []
    assert memory(source) == [("drop", "buf2", None)]
    assert source.dynamic


def test_g7_the_size_of_an_rng_state_is_harmless() -> None:
    source = read(
        """
        rng_state_output_0_size = rng_state_output_0.size()
        s86 = rng_state_output_0_size[0]
        """
    )
    assert source.launches == []
    assert source.unknown == []
    assert memory(source) == []


def test_g8_tensors_in_lists_are_arguments_of_their_own() -> None:
    launch = only(read("buf1 = torch.ops.aten.index.Tensor(arg0_1, [None, buf0])"))
    assert arguments(launch) == [
        ("arg0_1", "in", "arg0_1"),
        ("buf0", "in", "buf0"),
        ("buf1", "out", "buf1"),
    ]


def test_g8_numbers_are_no_arguments() -> None:
    launch = only(read("buf0 = torch.ops.aten._fft_r2c.default(arg0_1, [1], 0, True)"))
    assert arguments(launch) == [("arg0_1", "in", "arg0_1"), ("buf0", "out", "buf0")]


def test_g9_a_second_name_is_an_alias_and_no_reuse() -> None:
    source = read(
        """
        buf1 = buf0
        buf3 = buf2; del buf2  # reuse
        buf5 = reinterpret_tensor(buf4, (8, 8), (8, 1), 0); del buf4  # reuse
        """
    )
    kinds = [entry for entry in memory(source) if entry[0] in ("alias", "reuse")]
    assert kinds == [("alias", "buf1", "buf0"), ("reuse", "buf3", "buf2"), ("reuse", "buf5", "buf4")]


def test_g10_members_of_a_pool_are_not_allocated_twice() -> None:
    source = read(
        """
        pool1 = empty_strided_cpu((1024, ), (1, ), torch.uint8)
        buf0 = alloc_from_pool(pool1, 0, torch.float32, (8, 8), (8, 1))
        buf2 = alloc_from_pool(pool1, 256, torch.float32, (8, 8), (8, 1))
        """
    )
    assert memory(source) == [
        ("pool", "pool1", None),
        ("pool_member", "buf0", "pool1"),
        ("pool_member", "buf2", "pool1"),
    ]


def test_g11_items_of_a_tuple_are_named_with_it() -> None:
    source = read(
        """
        buf0 = torch.ops.aten.sort.stable(arg0_1, stable=False, dim=1, descending=False)
        buf1 = buf0[0]
        buf2 = buf0[1]
        del buf0
        """
    )
    assert only(source).site.outputs == ["buf0"]
    assert memory(source) == [("item", "buf1", "buf0"), ("item", "buf2", "buf0"), ("free", "buf0", None)]


@pytest.mark.parametrize(
    ("carrier", "lead"),
    [
        ("run_and_save_rng_state", ""),
        ("run_with_rng_state", "rng_state_output_0, "),
        ("graphsafe_run_with_rng_state", ""),
    ],
)
def test_g12_the_real_operator_is_named(carrier: str, lead: str) -> None:
    operator = "torch.ops.aten.native_dropout.default"
    launch = only(read(f"buf1 = torch.ops.higher_order.{carrier}({lead}{operator}, buf0, 0.5, True)"))
    assert launch.site.operator == operator
    assert ("buf0", "in", "buf0") in arguments(launch)
    assert operator not in [argument.name for argument in launch.site.arguments]


def test_g13_an_input_written_in_place_is_read_and_written() -> None:
    kernel = cpp("cpp_fused_add_0", ["const float*", "float*"], "const float* in_ptr0,\n float* out_ptr1")
    launch = only(read("cpp_fused_add_0(arg0_1, arg0_1)", kernel))
    assert {role for _, role, buffer in arguments(launch) if buffer == "arg0_1"} in ({"in", "out"}, {"inout"})


def test_g14_parameters_with_names_of_their_own() -> None:
    kernel = cpp(
        "cpp_fused_flex_attention_1",
        ["const float*", "const float*", "const int32_t*", "float*"],
        "const float* query, const float* key, const int32_t* kv_indices, float* output",
    )
    launch = only(read("cpp_fused_flex_attention_1(arg0_1, arg1_1, buf6, buf11)", kernel))
    assert [role for _, role, _ in arguments(launch)] == ["in", "in", "in", "out"]
    assert [argument.parameter for argument in launch.site.arguments] == ["query", "key", "kv_indices", "output"]


def test_partitions_are_subgraphs_and_functions() -> None:
    partition = """
        def partition_0(args):
            arg0_1, = args
            args.clear()
            buf0 = empty_strided_cpu((8, 8), (8, 1), torch.float32)
            extern_kernels.mm(arg0_1, arg0_1, out=buf0)
            return (buf0, )
    """
    source = read("(buf0,) = self.partitions[0](partition0_args)\ndel partition0_args", partition)
    assert [(site.function, site.kind, site.kernel) for site in source.sites] == [
        ("partition_0", "extern", "extern_kernels.mm"),
        ("call", "subgraph", "self.partitions[0]"),
    ]
    assert source.functions == ["partition_0", "Runner.call"]


def test_an_unknown_call_is_a_launch_of_unknown_kind() -> None:
    source = read("buf1 = something_new(buf0, 3)")
    launch = only(source)
    assert (launch.site.kind, launch.site.kernel, launch.site.outputs) == ("unknown", "something_new", ["buf1"])
    assert arguments(launch) == [("buf0", "inout", "buf0"), ("buf1", "out", "buf1")]
    assert source.unknown == []


def test_what_decides_a_branch_is_kept_to_be_said() -> None:
    source = read("if something_new(buf0, 3):\n    del buf1")
    assert source.launches == []
    assert source.unknown == ["call: something_new(buf0, 3)"]


def test_what_decides_about_checks_of_outputs_is_of_a_known_form() -> None:
    """As TORCHINDUCTOR_NAN_ASSERTS=1 has it, with which --crash runs a program again."""
    source = read(
        """
        return_vars = (buf0, )
        for var in return_vars:
            if isinstance(var, torch.Tensor):
                assert not var.isnan().any().item()
        for number in range(2):
            del buf0
        """
    )
    assert source.unknown == []
    assert [launch.site.kind for launch in source.launches] == ["unknown"]


def test_a_reduction_of_a_workspace() -> None:
    launch = only(read("buf1 = workspace_0[0 * 512 * 2048:(0 + 1) * 512 * 2048].view(512, 2048).sum(dim=0)"))
    assert (launch.site.kind, launch.site.kernel, launch.site.outputs) == ("fallback", "Tensor.sum", ["buf1"])
    assert launch.site.arguments[0].buffer == "workspace_0"
    assert isinstance(launch.expressions[0], ast.Constant)  # it is not worked out a second time


@pytest.mark.parametrize(
    ("statement", "kind", "kernel"),
    [
        ("torch.full((4,), 0, out=buf0)", "unknown", "torch.full"),
        ("buf1 = buf0.to(torch.float16)", "fallback", "Tensor.to"),
        ("buf1 = (helper[0](buf0))[1]", "unknown", "helper[0]"),
        ("buf1 = helpers[name](buf0)", "unknown", "buf1 = helpers[name](buf0)"),
        ("assert not buf0.isnan().any().item()", "fallback", "Tensor.any"),
        ("buf1 = [something(buf0), None]", "unknown", "something"),
        ("buf0.mul_(2)", "fallback", "Tensor.mul_"),
        ("buf1 = something(buf0) if flag else buf0", "unknown", "something"),
        ("return (something(buf0), )", "unknown", "something"),
    ],
)
def test_whatever_calls_is_a_launch(statement: str, kind: str, kernel: str) -> None:
    launch = only(read(statement))
    assert (launch.site.kind, launch.site.kernel) == (kind, kernel)
    assert launch.site.arguments[0].buffer == "buf0"


@pytest.mark.parametrize(
    "statement",
    ["buf1 = buf0.permute(1, 0)", "u0 = buf0.item()", "stream1.wait_stream(stream0)", "event0.record(stream0)",
     "buf1 = buf0[0:4].view(2, 2)", "torch.cuda.set_device(0)", "raise RuntimeError(name)", "s1 = max(s0, 2)",
     "s1 = round(abs(s0) / 3)", "zf0 = torch._sym_sqrt(torch.sym_float(s0))",
     "_print_debugging_tensor_value_info('inductor: before_launch - extern_kernels.mm - buf0', buf0)",
     "torch.save(buf0, 'before_launch_extern_kernels.mm_buf0.pt')"],
)  # fmt: skip
def test_what_launches_nothing_is_no_launch(statement: str) -> None:
    source = read(statement)
    assert source.launches == []
    assert source.unknown == []


def test_text_that_is_not_python_is_refused() -> None:
    with pytest.raises(SyntaxError):
        analyse("# AOT ID: ['0_inference']\ndef call(args:\n")


def test_checks_of_memory_steps_are_no_launches_in_either_form() -> None:
    source = read(
        """
        buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
        check_memory_step(allocated=['buf0'], freed=[])
        torch.ops._inductor_debug.check_memory_step.default(['buf0'], [], False)
        torch.ops._inductor_debug.check_memory_step([], ['buf0'], True)
        """
    )
    assert source.launches == []
    assert source.unknown == []
