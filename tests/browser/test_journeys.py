"""Five journeys from a symptom to its cause, each from the overview and with few clicks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stepscope.tracer.schema.graphs import Provenance, SiteProvenance
from stepscope.tracer.schema.process_ends import End, Frame
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.store.open import open_trace
from tests.browser.conftest import Visit, serving
from tests.browser.walk import clicks_to
from tests.logs import compile_summary_logs, memory_logs, memory_records, overflow_log, rank_logs
from tests.logs.synthetic import LogBuilder, run
from tests.viewer.values.test_storage_overlap import FLIPPED, SAME, cpp, log_of, pair, vector

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def nan_only_when_compiled(folder: Path) -> None:
    overflow_log.recorded().write(folder / "train.log")


def memory_grows(folder: Path) -> None:
    program, log = memory_logs.forward(), LogBuilder().record(run())
    log.record(program.graph()).record(program.provenance())
    log.record(memory_logs.layout(0, 0, [("buf0", "allocated", 1 << 20, 0, memory_logs.NEW)], []))
    for step in range(8):
        start_ns = memory_logs.start_of(step)
        log.record(memory_logs.calls_of(step, program, step, start_ns)).record(memory_logs.lifetimes([step], [0]))
        log.record(Steps([step], ["train"], ["user"], [start_ns], [start_ns + 9_000]))
    log.record(memory_records.growth([(step, 0) for step in range(8)], ["list of 8 in history of __main__"]))
    log.record(End("exit", memory_logs.start_of(9))).write(folder / "train.log")


def recompiles_until_eager(folder: Path) -> None:
    compile_summary_logs.with_recompiles().write(folder / "train.log")


def in_place_and_wrong(folder: Path) -> None:
    log = log_of(cpp(vector(FLIPPED, SAME)), pair())
    log.record(
        Provenance(0, [Frame("/src/model.py", 4, "f", "x.add_(x.flip(0))")], [SiteProvenance(0, [[0]], ["add"])])
    )
    log.write(folder / "train.log")


def one_rank_differs(folder: Path) -> None:
    rank_logs.write(folder, rank_logs.with_change(4, changed=2, at=1, operator="cos", function="decode"))


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (nan_only_when_compiled, {"model.py:12": 0, "NaN": 0, "+inf 3": 1, "65,504": 1}),
        (memory_grows, {"grows": 0, "history": 0, "model.py:10": 1}),
        (recompiles_until_eager, {"model.py:10": 0, "self.step": 1, "if self.step % 2:": 1}),
        (in_place_and_wrong, {"model.py:4": 0, "overwritten": 0, "x.add_(x.flip(0))": 1}),
        (one_rank_differs, {"model.py:10": 0, "rank 2": 0, "decode": 1}),
    ],
)
def test_the_cause_is_few_clicks_away(
    visit: Visit, tmp_path: Path, write: Callable[[Path], None], told: dict[str, int]
) -> None:
    write(tmp_path)
    with open_trace(tmp_path) as trace, serving(trace) as root:
        clicks = {text: clicks_to(visit, root, text) for text in told}
        visit.page.goto("about:blank")
    assert {text: most for text, most in told.items() if (took := clicks[text]) is None or took > most} == {}, clicks
