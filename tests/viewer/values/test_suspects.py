"""A NaN that a fused kernel made of finite elements names the operators and the lines that may have made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from stepscope.viewer.findings.values.suspects import averages_loss, listed, suspects
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


@pytest.mark.parametrize(("reduction", "averages"), [("", True), (", reduction='none'", False), ("=sum", True)])
def test_a_loss_that_is_not_averaged(opened: Open, reduction: str, averages: bool) -> None:
    assert averages_loss(site_of(opened, "nll_loss_forward", f"F.nll_loss(x, y{reduction})")) == averages
