"""Which printed launches name all that they read, by the generated C++ code that prints them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.printed_code import printing_calls
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import NAN, Program, ValueLog

CODE = """
    aoti_torch_print_tensor_handle(arg0_1, "aoti_model_inputs - arg0_1");
    // Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]
    aoti_torch_print_tensor_handle(buf0, "before_launch - aoti_torch_cpu_addmm_out - buf0");
    aoti_torch_print_tensor_handle(arg0_1, "before_launch - aoti_torch_cpu_addmm_out - arg0_1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(buf0, bias, arg0_1, \
wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(weight, 2, int_array_0, int_array_1, 0L)), 1L, 1L));
    aoti_torch_print_tensor_handle(buf0, "after_launch - aoti_torch_cpu_addmm_out - buf0");
    aoti_torch_print_tensor_handle(arg0_1, "after_launch - aoti_torch_cpu_addmm_out - arg0_1");
    // [Provenance debug handles] cpp_fused_log_0:2
    aoti_torch_print_tensor_handle(buf0, "before_launch - cpp_fused_log_0 - buf0");
    aoti_torch_print_tensor_handle(buf1, "before_launch - cpp_fused_log_0 - buf1");
    cpp_fused_log_0((const float*)(buf0.data_ptr()), (float*)(buf1.data_ptr()), s77);
    aoti_torch_print_tensor_handle(buf0, "after_launch - cpp_fused_log_0 - buf0");
    aoti_torch_print_tensor_handle(buf1, "after_launch - cpp_fused_log_0 - buf1");
    buf0.reset();
    static constexpr int64_t int_array_2[] = {16L, 8L};
    aoti_torch_print_tensor_handle(buf2, "before_launch - aoti_torch_cpu_mm_out - buf2");
    aoti_torch_print_tensor_handle(buf1, "before_launch - aoti_torch_cpu_mm_out - buf1");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(buf2, buf1, \
wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper(buf1, 2, int_array_2, int_array_0, 0L))));
    aoti_torch_print_tensor_handle(buf2, "after_launch - aoti_torch_cpu_mm_out - buf2");
    aoti_torch_print_tensor_handle(buf1, "after_launch - aoti_torch_cpu_mm_out - buf1");
    aoti_torch_print_tensor_handle(buf2, "before_launch - cpp_fused_add_1 - buf2");
    cpp_fused_add_1((float*)(buf2.data_ptr()), (const float*)(weight.data_ptr()));
    aoti_torch_print_tensor_handle(buf2, "after_launch - cpp_fused_add_1 - buf2");
    aoti_torch_print_tensor_handle(buf2, "before_launch - at::_ops::sort_stable::call - buf2");
    AOTI_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_sort_stable(buf2, &var_0, 1L, 0, &buf8_handle, &buf9_handle));
    aoti_torch_print_tensor_handle(buf2, "after_launch - at::_ops::sort_stable::call - buf2");
"""


def test_calls_and_what_is_printed_of_them() -> None:
    assert [(call.kernel, call.arguments, call.names_all) for call in printing_calls(CODE)] == [
        ("aoti_torch_cpu_addmm_out", ["buf0", "arg0_1"], False),
        ("cpp_fused_log_0", ["buf0", "buf1"], True),
        ("aoti_torch_cpu_mm_out", ["buf2", "buf1"], True),
        ("cpp_fused_add_1", ["buf2"], False),
        ("at::_ops::sort_stable::call", ["buf2"], False),
    ]
    assert list(printing_calls("")) == []
    assert list(printing_calls(CODE[: CODE.index("    cpp_fused_log_0(")]))[1:] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "held", "verdict"),
    [
        (CODE, "uninitialised", "made"),
        (CODE, None, "not known"),
        (CODE.replace("(const float*)(buf0", "(const float*)(weight"), "uninitialised", "not known"),
        (CODE.replace("cpp_fused_log_0 - buf1", "cpp_fused_log_0 - buf7"), "uninitialised", "not known"),
        ("", "uninitialised", "not known"),
    ],
)
def test_a_nan_is_made_where_the_code_prints_all_that_is_read(
    opened: Callable[[LogBuilder | bytes], Trace], code: str, held: Any, verdict: str
) -> None:
    program = Program(compile_id="-").launch("aoti_torch_cpu_addmm_out", ["arg0_1"], ["buf0"])
    program.sites[0] = replace(program.sites[0], arguments=program.sites[0].arguments[::-1])
    program.layout = [(0, 0, "after", "buf0")]
    program.launch("cpp_fused_log_0", ["buf0"], ["buf1"], "cpp")
    site = program.sites[1]
    program.layout = [(1, 0, "before", "buf0"), (1, 1, "after", "buf1")]
    given, made = site.arguments
    program.sites[1] = replace(site, arguments=[replace(given, held="written"), replace(made, held=held)])
    log = ValueLog()
    log.log.record(replace(program.graph(), operands_left_out="weights and views"))
    log.log.torch("graph_dump", {"name": "inductor_aot_wrapper_code"}, code.encode())
    log.call(program, buf1=NAN)
    (finding,) = all_findings(opened(log.end()))
    assert (finding.kernel, finding.evidence["origin"]) == ("cpp_fused_log_0", verdict)
