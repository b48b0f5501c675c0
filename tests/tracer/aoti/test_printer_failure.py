"""What the command says where PyTorch's debug printer cannot be compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.tracer.aoti.live import NOT_REACHED, NOTHING_PRINTED, about_printed, number_for_a_tensor
from stepscope.tracer.log.writer import encoded
from stepscope.tracer.schema.graphs import CppCode

GCC = (
    "\tInductorError: CppCompileError: C++ compile error\n\tCommand:\n\tg++ x.cpp\n\tOutput:\n"
    "\tx.cpp:9:36: error: invalid conversion from \u2018int64_t\u2019 to \u2018AtenTensorHandle\u2019 [-fpermissive]\n"
    '\t    9 |     aoti_torch_print_tensor_handle(arg0_1, "aoti_model_inputs - arg0_1");\n'
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GCC, "takes arg0_1, which is a number, for a tensor"),
        ("V1122\t\n" + GCC.replace("\n\t", "\\n") + "V1122 next\n", "takes arg0_1, which is a number, for a tensor"),
        (GCC[: GCC.index("\t    9")], "takes an input that is a number for a tensor"),
        (GCC[: GCC.index("\tx.cpp")] + "V1122 code\n\taoti_torch_print_tensor_handle(arg0_1, \n", None),
        (GCC.replace("error: invalid conversion", "error: bad token").replace("_tensor_handle(", "(")
         .replace("AtenTensor", ""), None),
        ("", None),
    ],
)  # fmt: skip
def test_a_number_that_the_printer_takes_for_a_tensor_is_told(tmp_path: Path, text: str, said: str | None) -> None:
    log = tmp_path / "x.log"
    log.write_text("V1122 begin\n" + text)
    told = number_for_a_tensor([tmp_path / "none.log", log])
    assert told is None if said is None else told is not None and said in told and "--aoti launches" in told


def test_what_is_said_of_a_run_that_printed_less(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("V1122 begin\n" + GCC)
    assert "takes arg0_1" in (about_printed(0, [log], failed=False) or "")
    assert "takes arg0_1" in (about_printed(3, [log], failed=True) or "")
    assert about_printed(3, [log], failed=False) is None
    assert about_printed(3, [], failed=True) is None
    assert about_printed(0, [], failed=False) == NOTHING_PRINTED


def test_a_run_that_compiled_printing_code_is_not_told_to_do_so(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_bytes(encoded(CppCode([], []), 1))
    assert about_printed(0, [tmp_path / "none.log", log], failed=True) == NOT_REACHED
    assert about_printed(3, [log], failed=True) is None
