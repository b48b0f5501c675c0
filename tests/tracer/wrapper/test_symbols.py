"""Scalar arguments of launch sites and the symbols that they follow from, from the text of a wrapper."""

from __future__ import annotations

import ast

from stepscope.tracer.log.launch_ring import SymbolValues
from stepscope.tracer.runtime.calls import GraphCall
from stepscope.tracer.runtime.launches import plain_values
from stepscope.tracer.runtime.outbox import symbols_of
from stepscope.tracer.wrapper.kernel_signatures import OperatorSchema
from stepscope.tracer.wrapper.parsed import WrapperSource
from stepscope.tracer.wrapper.source import analyse

CPP = """
cpp_fused_mul_0 = async_compile.cpp_pybinding(['const float*', 'float*', 'const int64_t', 'const double'], r'''
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0, const double ks1)
{
}
''')
"""
TRITON = """
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
@triton_heuristics.pointwise(
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'ks0': 'i64', 'xnumel': 'i32',
                               'XBLOCK': 'constexpr'}, 'constants': {}},
)
@triton.jit
def triton_poi_fused_0(in_ptr0, out_ptr0, ks0, xnumel, XBLOCK : tl.constexpr):
    pass
''', device_str='cuda')
scale_1 = async_compile.triton('scale', '''
@triton_heuristics.user_autotune(
    triton_meta={'signature': {'x_ptr': '*fp32', 'n': 'i32', 'BLOCK': 'constexpr'}, 'constants': {'BLOCK': 128}},
)
@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    tl.store(x_ptr, 0)
''', device_str='cuda')
"""
LAUNCHES = """
def call(args):
    arg0_1, arg1_1, arg2_1, arg3_1 = args
    args.clear()
    s77 = arg0_1
    s86 = arg2_1
    buf0 = empty_strided_cpu((s77, s77), (s77, 1), torch.float32)
    cpp_fused_mul_0(arg1_1, buf0, s77, zf0)
    u0 = buf0.item()
    triton_poi_fused_0_xnumel = s77*max(s86, 1)
    triton_poi_fused_0.run(buf0, buf0, s86, triton_poi_fused_0_xnumel, stream=stream0)
    scale_1.run(buf0, 1 + u0, 4, 1, 1, stream=stream0)
    extern_kernels.addmm(buf0, buf0, buf0, alpha=1, beta=0.5, out=buf0)
    buf3 = torch.ops.my.op.default(buf0, arg3_1, [1, s77], dtype=torch.float32, device=device(type='cpu'))
    buf0.copy_(arg1_1, True)
    return (buf0, )
"""


def read(body: str = LAUNCHES) -> WrapperSource:
    def schema(name: str) -> OperatorSchema | None:
        parameters = ("self", False), ("factor", False), ("size", False)
        return (
            OperatorSchema(parameters, None, (None, "float", "List[int]")) if name.startswith("torch.ops.my") else None
        )

    return analyse(f"{CPP}{TRITON}{body}", schema)


def scalars(kernel: str) -> list[tuple[int | None, str | None, str, str | None]]:
    (site,) = (site for site in read().sites if site.kernel == kernel)
    return [(one.position, one.name, one.expression, one.type) for one in site.scalars]


def test_numbers_of_a_cpp_kernel_have_the_names_and_types_of_its_parameters() -> None:
    assert scalars("cpp_fused_mul_0") == [(2, "ks0", "s77", "int64_t"), (3, "ks1", "zf0", "double")]


def test_a_number_that_is_computed_from_symbols_is_told_by_them() -> None:
    assert scalars("triton_poi_fused_0") == [(2, "ks0", "s86", "i64"), (3, "xnumel", "s77 * max(s86, 1)", "i32")]


def test_a_users_triton_kernel_has_its_grid_and_what_is_compiled_in() -> None:
    assert scalars("scale_1") == [
        (1, "n", "1 + u0", "i32"),
        (2, "grid[0]", "4", "int"),
        (3, "grid[1]", "1", "int"),
        (4, "grid[2]", "1", "int"),
        (None, "BLOCK", "128", "constexpr"),
    ]


def test_factors_of_an_extern_kernel() -> None:
    assert scalars("extern_kernels.addmm") == [(None, "alpha", "1", "int"), (None, "beta", "0.5", "float")]


def test_an_operators_schema_tells_which_names_are_no_tensors() -> None:
    assert scalars("torch.ops.my.op.default") == [
        (1, "factor", "arg3_1", "float"),
        (2, "size", "[1, s77]", "List[int]"),
        (None, "dtype", "torch.float32", None),
        (None, "device", "device(type='cpu')", None),
    ]
    (site,) = (site for site in read().sites if site.kernel == "torch.ops.my.op.default")
    assert [argument.name for argument in site.arguments] == ["buf0", "buf3"]


def test_a_flag_of_a_method() -> None:
    assert scalars("Tensor.copy_") == [(1, None, "True", "bool")]


def test_symbols_are_told_once_where_they_become_known() -> None:
    source = read()
    assert set(source.symbols) == {"s77", "s86", "u0", "arg3_1"}
    told = [(ast.unparse(binding.statement), set(binding.names)) for binding in source.bindings]
    assert told == [
        ("arg0_1, arg1_1, arg2_1, arg3_1 = args", {"arg3_1"}),
        ("s86 = arg2_1", {"s77", "s86"}),
        ("u0 = buf0.item()", {"u0"}),
    ]


def test_a_name_that_is_assigned_twice_is_a_symbol_of_its_own() -> None:
    source = read("def call(args):\n    n = 4\n    cpp_fused_mul_0(buf0, buf1, n, 1.0)\n    n = 5\n")
    assert source.symbols == ["n"]
    assert [binding.names for binding in source.bindings] == [("n",), ("n",)]
    assert source.sites[0].scalars[0].expression == "n"


def test_a_number_that_is_rounded_is_told_by_its_symbols() -> None:
    code = "def call(args):\n    (s0,) = args\n    n = round(s0 / 3)\n    cpp_fused_mul_0(buf0, buf1, n, 1.0)\n"
    source = read(code)
    assert (source.symbols, source.sites[0].scalars[0].expression) == (["s0"], "round(s0 / 3)")


def test_a_number_that_is_computed_in_a_loop_is_a_symbol() -> None:
    source = read("def call(args):\n    while more:\n        n = m + 1\n        cpp_fused_mul_0(buf0, buf1, n, 1.0)\n")
    assert source.symbols == ["n"]


def test_a_number_that_is_computed_from_itself() -> None:
    source = read("def call(args):\n    n = n + 1\n    cpp_fused_mul_0(buf0, buf1, n, 1.0)\n")
    assert source.sites[0].scalars[0].expression in ("n", "n + 1")


def test_what_is_asked_of_a_tensor_makes_the_tensor_no_symbol() -> None:
    source = read("def call(args):\n    buf0, buf1 = args\n    cpp_fused_mul_0(buf0, buf1, buf0.item(), buf1[0] + 1)\n")
    assert source.symbols == []
    assert [one.expression for one in source.sites[0].scalars] == ["buf0.item()", "buf1[0] + 1"]


class Call(GraphCall):
    def __init__(self, number: int, *values: object) -> None:
        super().__init__(0, 0, None, None)
        self.number = number
        self.symbols = [SymbolValues(tuple(range(len(values))), 0, plain_values(values))] if values else []


def test_calls_with_the_same_numbers_share_an_assignment() -> None:
    (record,) = symbols_of([Call(3, 16, 7), Call(4), Call(5, 16, 9), Call(6, 16, 7)])
    assert (record.call, record.assigned) == ([3, 5, 6], [0, 1, 0])
    assert [one.value for one in record.assignments] == [[16, 7], [16, 9]]


def test_what_is_equal_and_of_another_type_is_told_apart() -> None:
    (record,) = symbols_of([Call(0, 1), Call(1, True), Call(2, 1.0)])
    assert [one.value[0] is True for one in record.assignments] == [False, True, False]
    assert [type(one.value[0]) for one in record.assignments] == [int, bool, float]


def test_what_json_cannot_say_is_said_in_words_or_not_at_all() -> None:
    assert plain_values([float("inf"), float("nan"), 2**70, object()]) == ("inf", "nan", None, None)


def test_no_call_with_symbols_makes_no_record() -> None:
    assert list(symbols_of([Call(1)])) == []
