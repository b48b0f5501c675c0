"""Records each test of pytest that compiles or calls compiled graphs, and writes the report of one that fails."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Generator
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest

from stepscope.tracer.autostart import Waiter, wait_for_compile
from stepscope.tracer.config import from_environment
from stepscope.tracer.inductor.compat import inductor_is_loaded
from stepscope.tracer.reading.command import write_report
from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.launches import Launches

_MOST_NAME = 100


class TestRecorder:
    """Records from the setup of a test to its failure or its end. Fixtures that live longer belong to one test."""

    __test__ = False  # it is no class of tests

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._waiter: Waiter | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None]:
        self._end()
        folder = self._folder / folder_name(item.nodeid)
        settings = {**os.environ, "STEPSCOPE_TRACE": str(folder)}
        self._waiter = wait_for_compile(configure=lambda: from_environment(settings))
        if inductor_is_loaded():  # the test may call what an earlier one compiled
            self._waiter.start()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed or report.when == "teardown":
            log = self._end()
            if report.failed and log is not None:
                error = call.excinfo.exconly() if call.excinfo else "it failed"
                said = write_report(log, log.with_name("report.html"), f"{item.nodeid}: {error}")
                report.sections.append(("stepscope", said))
        return report

    def pytest_sessionfinish(self) -> None:
        self._end()

    def _end(self) -> Path | None:
        """End the recording of a test, and return its log if it has one."""
        waiter, self._waiter = self._waiter, None
        if waiter is None:
            return None
        waiter.stop()
        log = waiter.recorder.path if waiter.recorder else None
        with suppress(OSError, ValueError):  # the test may have removed or emptied the log
            if log is None or _has_content(log):
                return log
            log.unlink()
            log.parent.rmdir()  # unless it holds the logs of other runs
        return None


def _has_content(log: Path) -> bool:
    """Return whether a log has a compile or a launch, beside the graphs that were there before."""
    names = (b'"dynamo_start"', f'"{ARTIFACT_PREFIX}{Launches.KIND}"'.encode())
    with log.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return any(content.find(name) >= 0 for name in names)


def folder_name(test: str) -> str:
    """Return the name of the folder of a test: its readable parts, and digits that tell it from other tests."""
    words = re.sub(r"\W+", "-", test.replace(".py::", "-")).strip("-")
    return f"{words[-_MOST_NAME:].strip('-')}-{hashlib.sha256(test.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
