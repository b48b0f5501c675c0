"""Follows one training run for the callbacks: records it, marks its steps, and writes the report if it fails."""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from stepscope import tracer
from stepscope.tracer.reading.command import write_report
from stepscope.tracer.runtime.active import current


class TrainingRun:
    """Records to `directory`, or else belongs to the recording that the program or its environment has started."""

    def __init__(self, directory: str | os.PathLike[str] | None, settings: dict[str, Any]) -> None:
        self._recorder = tracer.trace(directory, **settings) if directory is not None else None
        self._directory = Path(directory) if directory is not None else None
        self._is_open = False

    def begin(self) -> None:
        if self._is_open:  # nobody said that the run before has ended
            self.failed(None)
        self._is_open = True
        # Called after the recorder has ended its log, because it registers itself later.
        atexit.register(self._on_exit)
        _after_cell(self._on_cell)
        if self._recorder is not None:
            self._recorder.start()

    def step(self) -> None:
        tracer.step()

    def end(self) -> None:
        """End the recording of a run that ended well."""
        if self._is_open:
            self._is_open = False
            atexit.unregister(self._on_exit)
            if self._recorder is not None:
                self._recorder.stop()

    def failed(self, error: BaseException | None) -> None:
        """Write the report of the run, which ended with `error` if that is known."""
        if not self._is_open:
            return
        recorder = current()
        self.end()
        if recorder is not None and recorder is not self._recorder:
            recorder.flush()
        log = self._log(recorder.config.directory if recorder else None)
        if log is None:
            return
        rank = os.environ.get("RANK", "0")
        report = log.with_name("report.html" if rank == "0" else f"report_rank_{rank}.html")
        known = traceback.format_exception_only(error) if error is not None else ["The training did not reach its end."]
        note = "".join(known).strip()
        print(f"stepscope: {write_report(log, report, note)}", file=sys.stderr)  # noqa: T201

    def _log(self, recorded: Path | None) -> Path | None:
        """Return the newest log of this process, or None if nothing was recorded."""
        folder = self._directory or recorded or Path(os.environ.get("STEPSCOPE_TRACE") or os.devnull)
        logs = folder.glob(f"stepscope_trace_rank_*_{os.getpid()}_*.log")
        return max(logs, key=lambda log: log.stat().st_mtime_ns, default=None)

    def _on_exit(self) -> None:
        error = getattr(sys, "last_value", None)
        self.failed(error if isinstance(error, BaseException) else None)

    def _on_cell(self, result: Any) -> None:
        """Write the report in a notebook, whose process outlives the exception."""
        error = result.error_in_exec or result.error_before_exec
        if error is not None:
            self.failed(error)


def _after_cell(tell: Any) -> None:
    """Call `tell` with the result of each cell if this is IPython."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is not None and tell not in shell.events.callbacks["post_run_cell"]:
        shell.events.register("post_run_cell", tell)
