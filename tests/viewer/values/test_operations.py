"""The operator and the line of the model that made what is not finite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from stepscope.viewer.findings.values.operations import operation, source_line
from stepscope.viewer.graphs.queries.graphs import site_rows
from stepscope.viewer.graphs.rows import SiteRow, SourceLine
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import NAN, Program, ValueLog

Open = Callable[[LogBuilder | bytes], Trace]


def site_of_lines(opened: Open, aten: list[str], *code: str) -> tuple[SiteRow, list[SourceLine]]:
    """Return the site of a fused kernel that computes operators of these lines of a model, and the lines."""
    kernel = "_".join(["cpp_fused", *(name.removeprefix("aten.") for name in aten), "0"])
    program = Program().launch(kernel, ["primals_1"], ["buf0"], "cpp", aten)
    log = ValueLog(program)
    log.call(program, buf0=NAN)
    (site,) = site_rows(opened(log.end()), [0])
    lines = [SourceLine("model.py", number, "f", line) for number, line in enumerate(code, 11)]
    return replace(site, stacks=[[line] for line in lines]), lines


def test_a_logarithm_makes_negative_infinities_and_not_the_division_before_it(opened: Open) -> None:
    site, lines = site_of_lines(opened, ["aten.div", "aten.log"], "q = w / w.sum()", "p = torch.log(q)")
    assert (operation(site, bad="-inf"), source_line(site, bad="-inf")) == ("log", lines[1])
    assert (operation(site, bad="inf"), source_line(site, bad="inf")) == ("div", lines[0])


def test_infinities_come_from_no_logarithm_of_finite_numbers(opened: Open) -> None:
    site, lines = site_of_lines(opened, ["aten.exp", "aten.log"], "total = x.exp().sum(1)", "out = total.log()")
    assert (operation(site, bad="inf"), source_line(site, bad="inf")) == ("exp", lines[0])
    assert (operation(site, bad="-inf"), source_line(site, bad="-inf")) == ("log", lines[1])


def test_infinities_come_from_no_root_of_finite_numbers(opened: Open) -> None:
    code = "noisy = a.sqrt() * x", "snr = a / (1 - a)", "scaled = x * torch.rsqrt(a)"
    site, lines = site_of_lines(opened, ["aten.sqrt", "aten.mul", "aten.div"], *code[:2])
    assert (operation(site, bad="inf"), source_line(site, bad="inf")) == ("div", lines[1])
    site, lines = site_of_lines(opened, ["aten.mul", "aten.rsqrt"], code[2])
    assert (operation(site, bad="inf"), source_line(site, bad="inf")) == ("rsqrt", lines[0])


def test_a_logarithm_and_not_a_variable_whose_name_contains_one(opened: Open) -> None:
    site, lines = site_of_lines(opened, ["aten._softmax", "aten.log"], "p = logits.softmax(-1)", "q = p.log()")
    assert (operation(site), source_line(site)) == ("log", lines[1])


def test_the_backward_of_a_logarithm_and_not_of_a_mean(opened: Open) -> None:
    loss = "loss = (0.5 * (x.square() - 1) - log_x).sum(1).mean()"
    logarithm = "log_x = torch.where(x > 0, torch.log(x), torch.zeros_like(x))"
    site, lines = site_of_lines(opened, ["aten.div", "aten.mul"], loss, logarithm)
    assert source_line(site, backward=True) == lines[1]
    assert operation(site, backward=True) == "the backward of log"
