"""What `stepscope check --baseline` says: what became worse, and nothing about what was so before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner, Result

from stepscope.tracer.schema.process_ends import End
from stepscope.viewer.cli import app
from stepscope.viewer.compare.baseline import against
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding, Severity
from stepscope.viewer.store.open import open_trace
from tests.logs import overflow_log
from tests.logs.memory_logs import NEW, calls_of, layout, lifetimes, start_of
from tests.logs.synthetic import LogBuilder, run
from tests.logs.timed_logs import KERNELS, noisy, run_of
from tests.logs.value_logs import NAN, Program, ValueLog

pytestmark = pytest.mark.slow


MB = 1_000_000


@pytest.fixture
def asked(tmp_path: Path) -> Any:
    def ask(base: LogBuilder, log: LogBuilder, *words: str) -> Result:
        before, after = base.write(tmp_path / "before" / "a.log"), log.write(tmp_path / "after" / "b.log")
        return CliRunner().invoke(app, ["check", str(after), "--baseline", str(before), *words])

    return ask


def answer(result: Result) -> Any:
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return orjson.loads(result.stdout)


def holding(size: int, rank: int = 0) -> LogBuilder:
    """Return a run whose graph allocates a buffer of `size` bytes."""
    program = Program().allocate("buf0").launch("a", ["x"], ["buf0"])
    log = LogBuilder().record(run(rank=rank)).record(program.graph())
    log.record(layout(0, 0, [("buf0", "allocated", size, 0, NEW)], [(0, 1)]))
    log.record(calls_of(0, program, 0, start_of(0))).record(lifetimes([0], [0]))
    return log.record(End("exit", start_of(9)))


def test_an_equal_run_is_no_regression(asked: Any) -> None:
    result = asked(run_of(noisy(1)), run_of(noisy(2)))
    assert result.exit_code == 0
    assert result.stdout.startswith("note: Peaks of memory were not compared")
    assert result.stdout.endswith("ok: no regression was found; the trace has 0 findings in all\n")
    result = asked(overflow_log.recorded(), overflow_log.recorded(), "--json")
    found = answer(result)
    assert (result.exit_code, found["format"], found["has_failed"]) == (0, "stepscope-check/1", False)
    assert found["findings"]  # they are not new
    assert found["regressions"] == []


def test_a_new_finding_is_told_once(asked: Any) -> None:
    def log(**stats: Any) -> LogBuilder:
        program = Program().launch("a", ["x"], ["buf0"]).launch("b", ["buf0"], ["buf1"])
        built = ValueLog(program)
        built.call(program, 0, **stats)
        return built.end()

    result = asked(log(), log(buf1=NAN))
    assert result.exit_code == 1
    (line, *notes) = result.stdout.splitlines()
    assert line.startswith("The finding nonfinite (critical) is new: ")
    assert all(note.startswith("note: ") for note in notes)
    assert asked(log(buf1=NAN), log(buf1=NAN)).exit_code == 0
    assert asked(log(buf1=NAN), log()).exit_code == 0
    assert asked(log(), log(buf1=NAN), "--fail-on", "growth").exit_code == 0


@pytest.mark.parametrize(
    ("known", "hits", "said"),
    [
        ([("info", "a_1")], [("warning", "a_2")], ["The finding k was info and is warning now: t."]),
        ([("critical", "a_1")], [("warning", "a_1")], []),
        ([("warning", "a_1")], [("warning", "a_1"), ("warning", "a_1")], ["The finding k (warning) is new: t."]),
        ([("warning", "a_1")], [("warning", "b_1")], ["The finding k (warning) is new: t."]),
    ],
)
def test_findings_are_matched_by_their_place(
    tmp_path: Path, known: list[tuple[Severity, str]], hits: list[tuple[Severity, str]], said: list[str]
) -> None:
    path = run_of(noisy(1), calls=2).write(tmp_path / "a.log")
    sides = ([Finding("k", one, "t", "r", {}, "/", kernel=kernel) for one, kernel in side] for side in (known, hits))
    before, after = sides
    with open_trace([str(path)]) as trace:
        assert [one.sentence for one in against(trace, trace, after, before).regressions] == said
        assert all_findings(trace) == []


@pytest.mark.parametrize(
    ("before", "after", "fails"),
    [(10 * MB, 13 * MB, True), (10 * MB, 10 * MB, False), (13 * MB, 10 * MB, False), (100 * MB, 102 * MB, False),
     (1000, 3000, False)],
)  # fmt: skip
def test_a_higher_peak_is_told_with_both_figures(asked: Any, before: int, after: int, fails: bool) -> None:
    result = asked(holding(before), holding(after))
    assert result.exit_code == int(fails)
    assert ("rose from 10.0 MB to 13.0 MB, in step 0." in result.stdout) == fails


def test_a_slower_kernel_and_slower_steps_are_told(asked: Any) -> None:
    result = asked(run_of(noisy(1)), run_of(noisy(2, {KERNELS[3]: 2.0})), "--json")
    found = answer(result)
    assert result.exit_code == 1
    assert [one["kind"] for one in found["regressions"]] == ["step time", "kernel time"]
    assert [one["factor"] for one in found["regressions"]] == pytest.approx([6 / 5, 2.0], rel=0.05)
    assert KERNELS[3] in found["regressions"][1]["sentence"]
    assert "in the baseline" in found["regressions"][0]["sentence"]
    assert asked(run_of(noisy(1, {KERNELS[3]: 2.0})), run_of(noisy(2))).exit_code == 0


def test_a_slower_machine_is_a_note(asked: Any) -> None:
    result = asked(run_of(noisy(1)), run_of(noisy(2, machine=3.0)))
    assert result.exit_code == 0
    assert "note: Most launch sites changed together: in the median they take 3.0" in result.stdout


def test_a_baseline_that_cannot_be_read_is_one_sentence(asked: Any, tmp_path: Path) -> None:
    path = run_of(noisy(1)).write(tmp_path / "a.log")
    result = CliRunner().invoke(app, ["check", str(path), "--baseline", str(tmp_path / "nothing")])
    assert "nothing" in str(result.exception)
