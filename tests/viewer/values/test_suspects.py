"""A NaN that a fused kernel made of finite elements names the operators and the lines that may have made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.viewer.findings.values.suspects import averages_loss, backward_suspects, listed, slope, suspects
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import NAN, Program, ValueLog

Open = Callable[[LogBuilder | bytes], Trace]


def site_of(opened: Open, operators: str, *code: str) -> SiteRow:
    """Return the site of a fused kernel that computes operators in these lines of a model, which begin at line 11."""
    aten = [f"aten.{name}" for name in operators.split()]
    program = Program().launch(f"cpp_fused_{operators.replace(' ', '_')}_0", ["primals_1"], ["buf0"], "cpp", aten)
    log = ValueLog(program)
    log.call(program, buf0=NAN)
    (site,) = site_rows(opened(log.end()), [0])
    return replace(site, stacks=[[SourceLine("model.py", line, "f", text)] for line, text in enumerate(code, 11)])


@pytest.mark.parametrize(
    ("operators", "code", "told"),
    [
        (
            "_log_softmax gather exp sub div",
            ("p = x.log_softmax(-1).gather(-1, t)", "kl = torch.exp(d) - d - 1", "return (kl * m).sum() / m.sum()"),
            "exp (model.py:12) or div (model.py:13)",
        ),
        ("exp sigmoid mul", ("gate = torch.sigmoid(x)", "y = gate * x"), ""),
        ("_log_softmax mean", ("loss = F.cross_entropy(x, y).mean()",), ""),
        ("pow sum sqrt", ("return diff.pow(2).sum(-1).sqrt()",), "sqrt (model.py:11)"),
        ("pow mul", ("return x**2 * y", "return x ** 0.5"), "pow (model.py:12)"),
        ("where _softmax div", ("a = torch.where(m, s / n, -inf).softmax(-1)",), ""),
        ("log add", ("y = x.log1p()  # / 2", "z = logits + y"), "log (model.py:11)"),
        (
            "exp div log sqrt",
            ("a = x.exp()", "b = a / c", "d = b.log()", "e = d.sqrt()"),
            "exp (model.py:11), div (model.py:12) or one of 2 other operators",
        ),
    ],
)
def test_suspects(opened: Open, operators: str, code: tuple[str, ...], told: str) -> None:
    assert listed(suspects(site_of(opened, operators, *code))) == told


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (("return torch.acos(x)", "pull = a.sum() / n"), "the backward of acos (model.py:11) or div (model.py:12)"),
        (("pull = a.sum() / n", "return torch.acos(x)"), "the backward of acos (model.py:12) or div (model.py:11)"),
        (
            ("pull = a.sum() / n.clamp_min(1)", "angle = torch.acos(x.clamp(-1, 1))"),
            "the backward of acos (model.py:12)",
        ),
        (("y = torch.sqrt(x + 1.0e-8)", "z = x / (s + self.eps)", "a = b / 2.0", "c = d / math.sqrt(4)"), ""),
        (("y = (x.pow(2).mean(-1) + self.eps).sqrt()", "a = x.clamp(min=5e-7).sqrt()", "c = x.view(b, n // 2)"), ""),
        (("s = q / sqrt(self.dim)", "t = q * numpy.sqrt(d)"), ""),
        (("y = torch.sqrt(x[:reps]) * self.steps",), "the backward of sqrt (model.py:11)"),
        (("y = (x * x).sum() ** 0.5",), "the backward of pow (model.py:11)"),
        (("y = torch.pow(x, 0.5)",), "the backward of pow (model.py:11)"),
        (("y = torch.where(x > 0, x.log(), 0)",), "the backward of log (model.py:11)"),
    ],
)
def test_suspects_of_a_backward_pass(opened: Open, code: tuple[str, ...], told: str) -> None:
    assert listed(backward_suspects(site_of(opened, "mul rsqrt neg div pow", *code))) == told


def test_a_kernel_without_the_operators_of_a_gradient_does_not_compute_it(opened: Open) -> None:
    code = ("s = q / self.head_dim ** 0.5", "d = (s - t).pow(2).sum(-1).sqrt()")
    assert listed(backward_suspects(site_of(opened, "mul div sub", *code))) == (
        "the backward of sqrt (model.py:12) or div (model.py:11)"
    )


def test_the_derivative_that_is_not_finite_is_told() -> None:
    assert slope("the backward of acos") == (
        "The derivative of acos is infinite at -1 and 1, and an infinity times a gradient of 0 is NaN."
    )
    assert slope("the backward of hypot") == "The derivative of hypot is 0 / 0 where both arguments are 0."
    assert slope("the backward of div") is None
    assert slope("acos") is None


@pytest.mark.parametrize(("reduction", "averages"), [("", True), (", reduction='none'", False), ("=sum", True)])
def test_a_loss_that_is_not_averaged(opened: Open, reduction: str, averages: bool) -> None:
    assert averages_loss(site_of(opened, "nll_loss_forward", f"F.nll_loss(x, y{reduction})")) == averages
