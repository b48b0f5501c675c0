"""What generated C++ code says of the launches that it prints, and how it comes to what was printed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from stepscope.tracer.aoti.capture import import_file
from stepscope.tracer.aoti.printer_output import PrinterReader
from stepscope.tracer.aoti.printing_code import PrintingCodes
from stepscope.tracer.inductor.codegen_facts import LaunchFacts
from stepscope.tracer.inductor.cpp_wrapper.calls import python_form
from stepscope.tracer.inductor.cpp_wrapper.code import cpp_code
from stepscope.tracer.log.writer import LogWriter
from stepscope.tracer.schema.graphs import CppCode, LaunchSite
from stepscope.tracer.schema.scalars import InputSize, Scalar
from stepscope.viewer.graphs.queries.graphs import graph_detail
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests.tracer.aoti.test_capture import block
from tests.tracer.aoti.test_printed_launches import runs

TEXTS = Path(__file__).with_name("texts")
CODE = (TEXTS / "code.cpp").read_text()
FACTS = [
    LaunchFacts("aoti_torch_cpu_addmm_out", "aoti_torch_cpu_addmm_out:1", ["op0"], [], [], ["other"], ["aten.other"]),
    LaunchFacts("cpp_fused_log_0", "cpp_fused_log_0:3", ["op2"], [], [], ["log"], ["aten.log"]),
]
ADDMM, LOG = "aoti_torch_cpu_addmm_out", "cpp_fused_log_0"
POOL, CUMSUM = "at::_ops::_adaptive_avg_pool2d::call", "at::_ops::cumsum::call"
FACTORS = [Scalar(4, "beta", "0.5", "double"), Scalar(5, "alpha", "1", "double")]


def sites(code: str = CODE) -> dict[str, LaunchSite]:
    return {site.kernel: site for site in cpp_code(code, FACTS).sites}


def test_launches_have_what_they_compute() -> None:
    found = cpp_code(CODE, FACTS)
    assert [(site.kernel, [one.name for one in site.arguments]) for site in found.sites] == [
        (ADDMM, ["buf0", "arg1_1"]), (LOG, ["buf0", "buf1"]), (POOL, ["buf1"]), (CUMSUM, ["buf1"]),
    ]  # fmt: skip
    assert [(site.source_nodes, site.aten) for site in found.sites] == [
        (["linear"], ["aten.t", "aten.addmm"]),
        (["log"], ["aten.log"]),
        (["pool"], ["aten._adaptive_avg_pool2d"]),
        ([], []),  # the comment above it is of another launch
    ]
    assert found.sizes == [InputSize("s77", "arg1_1", 0)]


def test_launches_have_the_numbers_that_they_are_given() -> None:
    found = sites()
    assert found[ADDMM].scalars == FACTORS
    assert found[LOG].scalars == [Scalar(2, "ks0", "div_floor_integer(16 * s77, 2)", "int64_t")]
    assert found[POOL].scalars == [Scalar(1, "output_size", "[s77, 4]", "int64_t*")]
    assert found[CUMSUM].scalars == [
        Scalar(1, "dim", "-1", "int64_t"), Scalar(2, "dtype", "torch.float64", "int32_t*"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8192L", "8192"),
        ("-std::numeric_limits<double>::infinity()", "float('-inf')"),
        ("nullptr", "None"),
        ("true", "True"),
        ('"mean"', "'mean'"),
        ("static_cast<double>(s77) + 1.0f", "s77 + 1.0"),
        ("cached_torch_device_type_cpu", "'cpu'"),
        ("a ? b : c", "a ? b : c"),
    ],
)
def test_an_argument_as_python_has_it(text: str, said: str) -> None:
    assert python_form(text, {}) == said


def test_code_that_prints_names_or_saves_has_the_same_launches() -> None:
    """Names alone are printed of every launch, also of those whose tensors are all views."""
    prints = re.compile(r'( *)aoti_torch_print_tensor_handle\((\w+), "(before|after)_launch - (.+) - \w+"\);')
    saves = prints.sub(r'\1aoti_torch_save_tensor_handle(\2, "\2", "\3_launch", "\4");', CODE)
    assert sites(saves) == sites()
    lines = list(dict.fromkeys(prints.sub(r'\1printf("[ \3_launch: \4 ]\\n");', CODE).splitlines()))
    named = sites("\n".join(lines))
    assert [(kernel, one.aten, one.scalars, one.arguments) for kernel, one in named.items()] == [
        (kernel, one.aten, one.scalars, []) for kernel, one in sites().items()
    ]


PRINTED = block("aoti_model_inputs", "", "arg1_1", "-1", "0", "1") + "".join(
    block(f"{moment}_launch", kernel, argument, "0", "1", "2")
    for kernel, arguments in (
        (ADDMM, ("buf0", "arg1_1")),
        (LOG, ("buf0", "buf1")),
        (POOL, ("buf1",)),
        (CUMSUM, ("buf1",)),
    )
    for moment in ("before", "after")
    for argument in arguments
)


def imported(folder: Path, logs: list[list[CppCode]], text: str) -> list[LaunchSite]:
    """Launch sites of printed text beside logs that tell of code."""
    for codes in logs:
        writer = LogWriter(folder, None)
        for code in codes:
            writer.write(code)
        writer.close()
    (folder / "printed.txt").write_text(text)
    log, *_ = import_file(str(folder / "printed.txt"), folder)
    with open_trace([str(log)]) as trace:
        detail = graph_detail(trace, 0)
        assert detail is not None
        return [
            LaunchSite(0, "run", 0, row.kernel, "extern", [], [], source_nodes=row.source_nodes, aten=row.aten,
                       scalars=[Scalar(one.position, one.name, one.expression, one.type) for one in row.scalars])
            for row in detail.sites
        ]  # fmt: skip


def test_printed_launches_have_what_their_code_says(tmp_path: Path) -> None:
    code = cpp_code(CODE, FACTS)
    other = CppCode(code.sites[:1], [])
    found = imported(tmp_path, [[other, code]], PRINTED * 2)
    assert [(one.kernel, one.source_nodes, one.aten, one.scalars) for one in found] == [
        (one.kernel, one.source_nodes, one.aten, one.scalars) for one in code.sites
    ]


def test_a_run_that_was_cut_off_has_what_its_code_says(tmp_path: Path) -> None:
    cut = PRINTED[: PRINTED.index(f"[  after_launch - {LOG} - buf0")]
    found = imported(tmp_path, [[cpp_code(CODE, FACTS)]], cut)
    assert [one.aten for one in found] == [["aten.t", "aten.addmm"], ["aten.log"]]


def test_what_codes_of_one_log_do_not_agree_in_is_left_out(tmp_path: Path) -> None:
    code = cpp_code(CODE, FACTS)
    first, *rest = code.sites
    found = imported(tmp_path, [[code, replace(code, sites=[replace(first, aten=["aten.mm"]), *rest])]], PRINTED)
    assert (found[0].aten, found[0].source_nodes, found[0].scalars) == ([], ["linear"], FACTORS)
    assert found[1].aten == ["aten.log"]


def test_code_of_other_launches_says_nothing(tmp_path: Path) -> None:
    code = cpp_code(CODE.replace("buf1", "buf7"), FACTS)
    head = 'V1122 00:00:00.000000 1 x.py:1] {"artifact":{"name":"stepscope_cpp_code"}}'
    for number, text in enumerate((head, f"{head}\n", f'{head}\n\t{{"sites": [', f'{head}\n\t{{"sites": [\n', "")):
        (tmp_path / f"torn_{number}.log").write_text(text)
    found = imported(tmp_path, [[code]], PRINTED)
    assert [(one.aten, one.source_nodes, one.scalars) for one in found] == [([], [], [])] * 4


def test_a_log_is_read_on_as_it_grows(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "whole", None)
    (tmp_path / "whole").mkdir()
    writer.write(cpp_code(CODE, FACTS))
    assert writer.path is not None
    data = writer.path.read_bytes()
    (run,) = runs([*PrinterReader().feed(PRINTED.encode())])
    codes, growing = PrintingCodes(tmp_path), tmp_path / "growing.log"
    for size in (20, data.index(b"\n") + 1, len(data) - 9):
        growing.write_bytes(data[:size])
        assert codes.of(run) is None
    growing.write_bytes(data)
    assert codes.of(run) == cpp_code(CODE, FACTS)


def test_a_size_of_an_input_is_the_symbol_of_a_call(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, None)
    writer.write(cpp_code(CODE, FACTS))
    writer.close()
    (tmp_path / "printed.txt").write_text(PRINTED + PRINTED.replace("4096", "30"))
    log, *_ = import_file(str(tmp_path / "printed.txt"), tmp_path)
    with open_trace([str(log)]) as trace:
        rows = sql.rows(
            trace,
            "SELECT call, symbol, value FROM call_symbols JOIN symbol_values USING (assignment) ORDER BY call",
        )
    assert [(call, symbol, str(value)) for call, symbol, value in rows] == [(0, "s77", "4096"), (1, "s77", "30")]
