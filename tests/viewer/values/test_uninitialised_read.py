"""Memory that is read before anybody wrote it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stepscope.viewer.findings import all_findings
from stepscope.viewer.store.trace import Trace
from tests.logs.synthetic import LogBuilder
from tests.logs.value_logs import Program, ValueLog

pytestmark = pytest.mark.slow


Open = Callable[[LogBuilder | bytes], Trace]


class TestUninitialised:
    def test_memory_that_nobody_wrote(self, opened: Open) -> None:
        program = Program().allocate("buf0").launch("a", ["buf0"], ["buf1"]).launch("b", ["buf0"], ["buf2"])
        log = ValueLog(program, level="launches")
        log.call(program)
        log.call(program, 1)
        (finding,) = all_findings(opened(log.end()))
        assert (finding.kind, finding.severity, finding.buffer) == ("uninitialised_read", "critical", "buf0")
        assert finding.title == "a (model.py:10) reads uninitialised memory: buf0"
        assert (finding.evidence["launches"], finding.evidence["sites"]) == (4, 2)

    def test_what_is_none(self, opened: Open) -> None:
        empty = Program().allocate("buf0").launch("a", ["buf0"], ["buf1"])
        log = ValueLog(empty)
        log.call(empty, 0, {(0, 0): [4, 0]})
        assert all_findings(opened(log.end())) == []
        accumulator = Program().allocate("buf0").launch("a", ["x", "buf0"], ["buf0"])
        log = ValueLog(accumulator)
        log.call(accumulator)
        assert all_findings(opened(log.end())) == []
        never_ran = Program().allocate("buf0").launch("a", ["buf0"], ["buf1"])
        assert all_findings(opened(ValueLog(never_ran).end())) == []
