"""The smallest input of each fault that the harness found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from stepscope.tracer.schema.record import Record
from stepscope.tracer.schema.steps import Steps
from stepscope.viewer.findings import all_findings
from stepscope.viewer.ingest.columns import as_column, joined
from stepscope.viewer.overview.queries.damage import problems
from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace
from tests.logs.poisoned import poisoned_logs
from tests.logs.synthetic import MONOTONIC_NS, LogBuilder, calls, recorded
from tests.viewer.client import Client

Opened = Callable[[LogBuilder | bytes], Trace]
_BATCH = calls(90, 9, MONOTONIC_NS + 10**9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Steps([-1], ["train"], ["user"], [MONOTONIC_NS], [MONOTONIC_NS + 1]), "Steps.step is negative"),
        (
            replace(_BATCH, calls=replace(_BATCH.calls, step=[-1] * len(_BATCH.calls.step))),
            "Launches.calls.step is negative",
        ),
    ],
)
def test_a_step_with_a_negative_number_is_a_problem_and_not_a_dead_link(
    record: Record, text: str, opened: Opened
) -> None:
    trace = opened(recorded(end=False).record(record))
    steps = [row.step for row in list_steps(trace)]
    assert steps == [row.step for row in list_steps(opened(recorded(end=False)))]
    assert [(row.reason, row.text) for row in problems(trace)] == [
        ("broken_payload", f"stepscope_{type(record).KIND}: {text}")
    ]
    client = Client(trace)
    assert {client.get(f"/steps/{step}").status_code for step in steps} == {200}


def test_numbers_of_one_log_stay_numbers_beside_a_log_without_them() -> None:
    """DuckDB takes the type of a column of objects from a few of them, and then refuses larger numbers."""
    column = joined([{"attempt": as_column([None, None])}, {"attempt": as_column([2**40, None])}])["attempt"]
    assert isinstance(column, np.ma.MaskedArray)
    assert (column.dtype, column.tolist()) == (np.int64, [None, None, 2**40, None])
    mixed = joined([{"number": as_column([0.5])}, {"number": as_column([3])}])["number"]
    assert isinstance(mixed, np.ma.MaskedArray)
    assert mixed.tolist() == [0.5, 3]


def test_a_capture_time_beyond_64_bits_is_left_out(opened: Opened) -> None:
    log = recorded()
    for time_us in (2**62, 7):
        log.torch("compilation_metrics", {"runtime_cudagraphify_time_us": time_us}, frame_id=0, frame_compile_id=0)
    answer = Client(opened(log)).get("/cuda-graphs.json")
    assert answer.status_code == 200
    assert answer.json()["cuda_graphs"]["cudagraphify_ns"] == 7_000


@pytest.mark.parametrize("name", sorted(poisoned_logs()))
def test_links_of_findings_lead_to_pages_without_graph_records(name: str, opened: Opened) -> None:
    trace = opened(poisoned_logs()[name].data.replace(b'"stepscope_graph"', b'"stepscope_lost"'))
    client = Client(trace)
    pages = {page for one in all_findings(trace) for page in (one.page, *(link.page for link in one.links))}
    assert {page: status for page in pages if (status := client.get(page).status_code) != 200} == {}


@pytest.mark.slow
def test_a_curve_has_a_page_without_graph_records(opened: Opened) -> None:
    trace = opened(poisoned_logs()["values"].data.replace(b'"stepscope_graph"', b'"stepscope_lost"'))
    sites = sql.rows(trace, "SELECT DISTINCT site, argument, moment FROM value_rows")
    assert sites
    addresses = [f"/curves?site={site}&argument={argument}&moment={moment}" for site, argument, moment in sites]
    assert {Client(trace).get(address).status_code for address in addresses} == {200}
