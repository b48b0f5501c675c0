"""Which arguments a kernel reads and writes, from its definition."""

from __future__ import annotations

import ast

from stepscope.tracer.wrapper.kernel_signatures import KernelDefinition, read_definition

TRITON = """
import triton
@triton_heuristics.pointwise(
    size_hints={'x': 64},
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}},
    inductor_meta={'mutated_arg_names': MUTATED},
)
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    pass
"""
USER = """
@triton_heuristics.user_autotune(
    triton_meta={'signature': {'x_ptr': '*fp32', 'y_ptr': '*fp32', 'n': 'i32'}},
)
@triton.jit
def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    target = y_ptr + offsets
    tl.store(target, tl.load(x_ptr + offsets) * 2)
"""


def define(statement: str) -> KernelDefinition:
    node = ast.parse(statement).body[0]
    assert isinstance(node, ast.Assign)
    assert isinstance(node.value, ast.Call)
    definition = read_definition("k", node.value, ast.unparse(node.value.func))
    assert definition is not None
    return definition


def roles(definition: KernelDefinition) -> list[tuple[str | None, str | None]]:
    assert definition.parameters is not None
    return [(parameter.name, parameter.role) for parameter in definition.parameters]


def test_cpp_kernel() -> None:
    source = 'extern "C"  void  kernel(float* in_out_ptr0,\n const long* in_ptr0, float* out_ptr0, const long ks0)\n{'
    types = "['float*', 'const int64_t*', 'float*', 'const int64_t']"
    definition = define(f"k = async_compile.cpp_pybinding({types}, {source!r})")
    assert definition.kind == "cpp"
    assert [role for _, role in roles(definition)] == ["inout", "in", "out", None]


def test_cpp_kernel_whose_parameters_have_other_names() -> None:
    source = 'extern "C" void kernel(const float* query, const float* key, float* output) {'
    definition = define(f"k = async_compile.cpp_pybinding(['const float*', 'const float*', 'float*'], {source!r})")
    assert roles(definition) == [("query", "in"), ("key", "in"), ("output", "out")]


def test_triton_kernel() -> None:
    definition = define(f"k = async_compile.triton('t', {TRITON.replace('MUTATED', '[]')!r}, device_str='cuda')")
    assert definition.kind == "triton"
    assert roles(definition) == [("in_ptr0", "in"), ("out_ptr0", "out"), ("xnumel", None)]


def test_triton_kernel_behind_a_helper() -> None:
    """The function that a scan combines elements with stands before the kernel."""
    helper = "@triton.jit\ndef _triton_helper_fn_add0(arg0_0, arg1_0):\n    return arg0_0 + arg1_0\n"
    source = TRITON.replace("MUTATED", "[]").replace("@triton_heuristics", f"{helper}\n@triton_heuristics")
    found = define(f"k = async_compile.triton('triton_poi_fused_0', {source!r})")
    assert roles(found) == [("in_ptr0", "in"), ("out_ptr0", "out"), ("xnumel", None)]


def test_triton_kernel_that_mutates_an_input() -> None:
    mutated = TRITON.replace("MUTATED", "['in_ptr0']")
    assert roles(define(f"k = async_compile.triton('t', {mutated!r})"))[0] == ("in_ptr0", "inout")


def test_a_number_that_is_one_or_a_missing_tensor_is_passed_too() -> None:
    code = USER.replace("def scale(x_ptr, y_ptr, n,", "def scale(n, bias, x_ptr, y_ptr,")
    constant = code.replace("'n': 'i32'", "'n': 'constexpr', 'bias': 'constexpr', 'BLOCK': 'constexpr'")
    definition = define(f"k = async_compile.triton('scale', {constant!r})")
    assert roles(definition) == [("n", None), ("bias", None), ("x_ptr", "in"), ("y_ptr", "inout")]


def test_a_users_kernel_writes_what_it_stores_to() -> None:
    definition = define(f"k = async_compile.triton('scale', {USER!r})")
    assert definition.kind == "user_triton"
    assert roles(definition) == [("x_ptr", "in"), ("y_ptr", "inout"), ("n", None)]
