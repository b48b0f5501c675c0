"""What the proof of a NaN says of the inputs of the launch that made it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.viewer.redaction.proofs import without_values
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import MASK, NAN, PLUS, Program, Stat, ValueLog
from tests.viewer.values.test_nonfinite import found, only

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]


class TestInputsOfAKernel:
    INDEX = Stat(numel=400, dtype="int64", min=0.0, max=63.0, mean=31.0, std=18.0, zero=5)
    FUSED = ("aten.index", "aten.index_add", "aten.div")

    @pytest.mark.parametrize(
        ("aten", "inputs", "size"),
        [
            (FUSED, "Inputs of the fused kernel: ", "; the kernel has finite floating-point inputs of at most 1"),
            (FUSED[-1:], "Inputs of div: ", ", computed from finite floating-point inputs of at most 1"),
        ],
    )
    def test_indices_are_no_numbers_that_it_computes_with(
        self, opened: Open, aten: tuple[str, ...], inputs: str, size: str
    ) -> None:
        """The tensor with zeros comes first, since the operator divides."""
        program = Program().launch("cpp_fused_0", ["primals_1", "primals_2", "primals_3"], ["buf0"], "cpp", aten)
        log = ValueLog(program)
        log.call(program, primals_1=self.INDEX, primals_3=Stat(zero=2), buf0=NAN)
        finding = only(opened, log)
        assert finding.proof[0] == (
            f"{inputs}primals_3 finite, zero in 2 of 64 elements, largest magnitude 1 (float32);"
            " primals_2 finite, largest magnitude 1 (float32)"
        )
        assert finding.proof[1].endswith(size)
        assert finding.evidence["in"][-1].startswith("primals_1 finite, zero in 5 of 400 elements")
        assert finding.evidence["chain"][-1]["largest"] == 1.0
        assert not without_values(finding.proof[1]).endswith("1"), "a redacted report has no values"

    def test_integers_alone_are_numbers(self, opened: Open) -> None:
        program = Program().launch("aten.div", ["primals_1"], ["buf0"], aten=["aten.div"])
        log = ValueLog(program)
        log.call(program, primals_1=self.INDEX, buf0=NAN)
        finding = only(opened, log)
        assert finding.proof[0].startswith("Inputs of div: primals_1 finite, zero in 5 of 400 elements")
        assert finding.proof[1].endswith(", computed from integer inputs of at most 63")


@pytest.mark.parametrize("reads", [["primals_1"], ["primals_1", "buf0"]])
def test_what_a_custom_operator_leaves_unwritten_may_be_of_its_caller(opened: Open, reads: list[str]) -> None:
    program = Program().allocate("buf0").launch("torch.ops.ssm.scan.default", reads, ["buf0"], "fallback")
    log = ValueLog(program)
    log.call(program, buf0=NAN)
    assert "which it or its caller allocates, as with torch.empty()" in only(opened, log).proof[-1]


@pytest.mark.parametrize(
    ("phase", "loss", "told"),
    [("forward", Stat(numel=1, pinf=1), 1), ("inference", Stat(numel=1, pinf=1), 0), ("forward", PLUS, 0)],
)
def test_an_infinite_loss_of_masked_scores(opened: Open, phase: str, loss: Stat, told: int) -> None:
    """A label whose score is masked makes the loss +inf; larger tensors may have what masks give."""
    program = Program(phase=phase).launch("cpp_fused_where_0", ["primals_1"], ["buf0"], "cpp", ["aten.where"])
    program.launch("cpp_fused_nll_loss_1", ["buf0"], ["buf1"], "cpp", ["aten.nll_loss_forward"])
    log = ValueLog(program)
    log.call(program, buf0=MASK, buf1=loss)
    titles = [(one.severity, one.title) for one in found(opened, log)]
    assert titles == [("critical", "+inf is produced by nll_loss (model.py:11) in step 0")] * told
