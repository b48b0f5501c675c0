"""Whoever waits in a terminal sees how much of the logs has been read."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest

from stepscope.viewer.cli import progress
from stepscope.viewer.cli.reading import summary
from stepscope.viewer.ingest import logs
from tests.logs.synthetic import recorded


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(log: Path, terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what `stepscope summary` writes to standard error, however fast the log is read."""
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    monkeypatch.setattr(logs, "AT_ONCE_BYTES", 0)
    monkeypatch.setattr(sys, "stderr", terminal)
    summary.main([str(log)], standalone_mode=False)
    return terminal.getvalue()


def test_a_bar_of_the_bytes_of_all_logs_and_then_of_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for rank in (0, 1):
        recorded(rank=rank, pid=100 + rank).write(tmp_path / f"stepscope_trace_rank_{rank}.log")
    text = shown(tmp_path, Terminal(), monkeypatch)
    assert re.search(r"stepscope: reading 0 of 0 MB of logs █{12}░{12} 50%", text)
    assert re.search(r"stepscope: writing \d+ of \d+ rows of the index █+░+ \d+%", text)
    assert text.endswith("\r\x1b[K")
    assert "100%" not in text


def test_no_bar_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = recorded().write(tmp_path / "stepscope_trace_0.log")
    assert shown(log, io.StringIO(), monkeypatch) == ""
