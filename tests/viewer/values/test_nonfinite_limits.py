"""Tests of what the finding keeps of many logs with many NaN, infinities and masks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.values import nonfinite
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.values.queries import nonfinite as queries
from tests.logs.value_logs import MASK, NAN, PLUS, Program, Stat, ValueLog

pytestmark = pytest.mark.slow


def told(folder: Path, *logs: ValueLog) -> list[tuple[int | None, str | None]]:
    """Return the logs and kernels of the findings, in order of the logs."""
    for rank, log in enumerate(logs):
        (folder / f"stepscope_trace_rank_{rank}.log").write_bytes(log.end().data)
    with open_trace(folder, index_dir=folder / "index") as trace:
        found = [one for one in all_findings(trace) if one.kind == "nonfinite"]
        return sorted((one.log, one.kernel) for one in found if one.log is not None)


def full(stat: Stat, kernel: str, aten: list[str], launches: int = 120) -> ValueLog:
    """Return a log of which each launch makes `stat`, and the last one, ``last``, -inf that is no mask."""
    program = Program()
    for number in range(launches):
        program.launch(f"{kernel}{number}", ["primals_1"], [f"buf{number}"], aten=aten)
    program.launch("last", ["primals_1"], ["loss"], aten=["aten.log"])
    log = ValueLog(program)
    stats: Any = {f"buf{number}": stat for number in range(launches)}
    log.call(program, **stats, loss=MASK)
    return log


def one_of(stat: Stat) -> ValueLog:
    program = Program().launch("own", ["primals_1"], ["buf0"])
    log = ValueLog(program)
    log.call(program, buf0=stat)
    return log


@pytest.mark.parametrize("stat", [NAN, PLUS])
def test_a_log_full_of_events_hides_no_first_one_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stat: Stat
) -> None:
    for name in ("_MOST_IN_ALL", "_MOST_FOLLOWED_IN_ALL"):
        monkeypatch.setattr(nonfinite, name, 4)
    monkeypatch.setattr(queries, "MOST_IN_ALL", 4)
    found = told(tmp_path, full(stat, "kernel_", []), one_of(NAN), one_of(PLUS))
    assert [log for log, _ in found].count(0) >= 2
    assert [one for one in found if one[0]] == [(1, "own"), (2, "own")]


def test_masks_of_all_logs_take_nothing_of_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_IN_ALL", 2)
    monkeypatch.setattr(nonfinite, "_MOST_IN_ALL", 2)
    masks = [full(MASK, "masked_", ["aten.where"]) for _ in range(3)]
    assert told(tmp_path, *masks) == [(0, "last"), (1, "last"), (2, "last")]
