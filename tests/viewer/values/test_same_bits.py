"""Readings with the same bits: which versions are unchanged, and what is equal to something else."""

from __future__ import annotations

from collections.abc import Callable

from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.values.queries.buffers import buffer_detail
from stepscope.viewer.values.rows import Reading
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import Program, Stat, ValueLog

Open = Callable[[LogBuilder | bytes], Trace]
HIGH = 2**64 - 5


def log_of(*digests: int, **changes: Stat) -> LogBuilder:
    """A log of one call a step, whose weight has these digests."""
    program = Program().launch("mm", ["primals_1"], ["buf0"]).launch("mul", ["buf0"], ["buf1"])
    log = ValueLog(program)
    for step, digest in enumerate(digests):
        log.call(program, step, None, primals_1=Stat(digest=digest), **changes)
    return log.end()


def since(trace: Trace, buffer: str = "primals_1") -> list[int | None]:
    detail = buffer_detail(trace, 0, buffer)
    assert detail is not None
    return [row.unchanged_since.step if row.unchanged_since else None for row in detail.versions]


def test_versions_are_unchanged_since_the_first_of_an_unbroken_run(opened: Open) -> None:
    trace = opened(log_of(7, 7, 9, 7, 7, 7, HIGH, HIGH, 0, HIGH))
    assert since(trace) == [None, 0, None, None, 3, 3, None, 6, None, None]
    detail = buffer_detail(trace, 0, "primals_1")
    assert detail is not None
    assert [row.digest for row in detail.versions][5:9] == ["0000000000000007", *["fffffffffffffffb"] * 2, None]


def test_a_buffer_is_equal_to_another_one(opened: Open) -> None:
    trace = opened(log_of(1, 2, 3, buf0=Stat(digest=4), buf1=Stat(digest=3)))
    detail = launch_detail(trace, 4)  # of step 2
    assert detail is not None
    assert detail.values is not None
    (weight,) = detail.values[0].before
    assert weight.equal_to == Reading(0, 1, 3, "buf1")
    (written,) = detail.values[1].after
    assert (written.unchanged_since, written.equal_to) == (Reading(0, 0, 0, "buf0"), None)


def test_samples_other_sizes_and_constants_prove_nothing(opened: Open) -> None:
    sample = Stat(digest=7, looked_at=8)
    assert since(opened(log_of(1, 2, buf0=sample)), "buf0") == [None, None]
    trace = opened(log_of(5, buf0=Stat(digest=5, numel=32), buf1=Stat(digest=5, min=0.0, max=0.0)))
    for name in ("buf0", "buf1"):
        detail = buffer_detail(trace, 0, name)
        assert detail is not None
        assert detail.versions[0].equal_to is None


def test_logs_without_digests_say_nothing(opened: Open) -> None:
    trace = opened(log_of(0, 0))
    detail = buffer_detail(trace, 0, "primals_1")
    assert detail is not None
    assert [(row.digest, row.unchanged_since, row.equal_to) for row in detail.versions] == [(None, None, None)] * 2
