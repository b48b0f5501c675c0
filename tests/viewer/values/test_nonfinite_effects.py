"""NaN and infinities that are told with what caused them, and not in findings of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import ALL_NAN, FINE, NAN, PLUS, Program, Stat, ValueLog, attention
from tests.viewer.values.test_nonfinite import HALF, OVERFLOWN, found, only

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]


def test_an_overflow_beside_one_that_becomes_nan_is_told_with_it(opened: Open) -> None:
    program = attention()
    program.launch("extern_kernels.mm", ["primals_4"], ["buf3"], aten=["aten.mm"])
    log = ValueLog(program)
    log.call(program, primals_1=HALF, primals_4=HALF, buf0=OVERFLOWN, buf1=NAN, buf2=NAN, buf3=OVERFLOWN)
    finding = only(opened, log)
    assert finding.title == "fp16 overflow in matmul (model.py:10) becomes NaN in softmax (model.py:11) in step 0"
    assert finding.proof[-1].startswith("Values also overflow in matmul (model.py:")
    log = ValueLog(program)
    log.call(program, primals_4=HALF, buf1=NAN, buf2=NAN, buf3=OVERFLOWN)
    assert len(found(opened, log)) == 2, "the NaN is not of an overflow"


@pytest.mark.parametrize("is_after", [True, False])
def test_nan_that_comes_in_after_an_infinity_left_a_graph(opened: Open, is_after: bool) -> None:
    """Code outside of the graphs may have made it of the infinity."""
    program = Program().launch("aten.log", ["primals_1"], ["buf0"], aten=["aten.log"])
    program.launch("extern_kernels.mm", ["primals_2"], ["buf1"], aten=["aten.mm"])
    log = ValueLog(program)
    infinity: Any = {"buf0": PLUS}
    nan: Any = {"primals_2": NAN, "buf1": ALL_NAN}
    for values in (infinity, nan) if is_after else (nan, infinity):
        log.call(program, 3, **values)
    findings = found(opened, log)
    came_in = (
        "NaN enters with the input or parameter primals_2 of graph 0/0 forward in step 3: it is first used in matmul"
    )
    if is_after:
        (finding,) = findings
        assert (finding.severity, finding.title) == (
            "critical",
            "+inf is produced by log (model.py:10) in step 3, and NaN later enters with the input or parameter"
            " primals_2 of graph 0/0 forward",
        )
        assert finding.proof[-1].startswith("This entered later in the step: primals_2 NaN ")
    else:
        assert [one.severity for one in findings] == ["critical", "warning"]
        assert findings[0].title.startswith(came_in)


@pytest.mark.parametrize(
    ("last", "told"), [(-100.0, ": all labels in primals_2 are -100, so that no loss is left to average"), (3.0, "")]
)
def test_labels_that_the_loss_ignores_altogether(opened: Open, last: float, told: str) -> None:
    program = Program().allocate("buf0")
    program.launch(
        "cpp_fused_nll_loss_forward_0", ["primals_1", "primals_2"], ["buf0"], "cpp", ["aten.nll_loss_forward"]
    )
    log = ValueLog(program)
    labels = Stat(numel=8, dtype="int64", min=-100.0, max=last, mean=-100.0, std=0.0)
    log.call(program, primals_2=labels, buf0=Stat(numel=1, nan=1, first_bad=0))
    assert only(opened, log).title.endswith(f"(model.py:10) in step 0{told}")


def test_an_infinity_whose_backward_makes_nan_is_told_with_it(opened: Open) -> None:
    forward = Program().launch("cpp_fused_log_0", ["primals_1"], ["buf0"], "cpp", ["aten.log"])
    backward = Program(1, "backward").launch("cpp_fused_log_1", ["tangents_1"], ["buf1"], "cpp", ["aten.log"])
    log = ValueLog(forward, backward)
    log.call(forward, buf0=PLUS)
    log.call(backward, buf1=NAN)
    finding = only(opened, log)
    assert finding.title == "NaN is produced by the backward of log (model.py:10) in step 0"
    assert finding.proof[0].startswith("log wrote buf0: +inf")


def test_the_backward_is_told_with_it_in_later_steps_too(opened: Open) -> None:
    """In the later step, the parameter has brought the NaN to the forward pass."""
    forward = Program().launch("extern_kernels.div", ["primals_1"], ["buf0"], aten=["aten.div"])
    backward = Program(1, "backward").launch("extern_kernels.div", ["tangents_1"], ["buf1"])
    log = ValueLog(forward, backward)
    for step, read in enumerate((FINE, NAN)):
        log.call(forward, step=step, primals_1=read, buf0=NAN)
        log.call(backward, step=step, tangents_1=FINE, buf1=NAN)
    first, *others = found(opened, log)
    assert first.title == "NaN is produced by div (model.py:10) in steps 0 and 1"
    assert [one for one in others if "is produced by" in one.title] == []
