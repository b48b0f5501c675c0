"""Compiles that a log does not finish are not said to have failed."""

from __future__ import annotations

from collections.abc import Callable

import orjson

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs import compile_logs
from tests.logs.synthetic import LogBuilder


def test_several_compiles_that_end_nowhere_were_not_in_vain(opened: Callable[[LogBuilder], Trace]) -> None:
    log = LogBuilder()
    for number in range(3):
        ids = compile_logs.ids(0, number)
        log.torch("dynamo_start", compile_logs.stack(compile_logs.FORWARD), **ids)
        event = {"name": "dynamo", "ph": "B", "ts": 1_000 + number, "tid": 0, "args": {"compile_id": f"0/{number}"}}
        log.torch("chromium_event", {}, orjson.dumps(event), **ids)
    log.torch("dynamo_start", compile_logs.stack(compile_logs.FORWARD), **compile_logs.ids(1, 0))
    (finding,) = all_findings(opened(compile_logs.metrics(log, 1, 0)))
    assert finding.title.startswith("forward (model.py:10) was not compiled completely: the log ends within it")
    assert (finding.severity, finding.proof, finding.evidence["failures"]) == ("info", [], 3)
