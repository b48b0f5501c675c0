"""The finding about loaders of which each step takes the first batch."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.repeats import RepeatedBatch
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder, run

Open = Callable[[LogBuilder | bytes], Trace]


def found(opened: Open, *records: RepeatedBatch) -> list[Finding]:
    log = LogBuilder().record(run())
    for record in records:
        log.record(record)
    return [one for one in all_findings(opened(log.record(End("exit", 1)))) if one.kind == "repeated_batch"]


def test_the_first_of_many_batches(opened: Open) -> None:
    (finding,) = found(opened, RepeatedBatch(32, 1_000, 32_000, 6, "/src/train.py", 9))
    assert finding.title == (
        "A DataLoader that does not shuffle (train.py:9) is begun again in each of 6 or more steps in a row, so that"
        " each of them gets the items of the first of 1,000 batches"
    )
    assert finding.proof[0] == (
        "The loader has 32,000 samples; those of 999 other batches are not used in these steps."
    )
    assert (finding.severity, finding.source and finding.source.line) == ("info", 9)


def test_two_batches(opened: Open) -> None:
    (finding,) = found(opened, RepeatedBatch(None, 2, 2, 6, "/src/train.py", 9))
    assert "those of 1 other batch are not used" in finding.proof[0]


def test_lines_have_findings_of_their_own(opened: Open) -> None:
    records = [RepeatedBatch(4, 3, 12, 6, "/src/train.py", line) for line in (9, 9, 12)]
    assert len(found(opened, *records)) == 2


def test_a_strange_record(opened: Open) -> None:
    assert found(opened, RepeatedBatch(4, 1, 4, 6, "/src/train.py", 9)) == []
