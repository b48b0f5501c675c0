"""The log on disk: made late, whole after each record, silent after an error."""

from __future__ import annotations

from pathlib import Path

from stepscope.tracer.log.writer import LogWriter
from stepscope.tracer.schema.gaps import Skipped
from tests.tracer import logs


def test_no_file_before_the_first_record(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "new", rank=3)
    assert not (tmp_path / "new").exists()
    writer.write(Skipped("x", "y"))
    assert writer.path is not None
    assert writer.path.name.startswith("stepscope_trace_rank_3_")
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert logs.read(writer.path)["skipped"] == [{"what": "x", "why": "y", "graph": None}]


def test_a_folder_that_cannot_be_made_is_a_failure_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = LogWriter(tmp_path / "file" / "below", rank=None)
    writer.write(Skipped("x", "y"))
    writer.write(Skipped("x", "y"))
    assert isinstance(writer.failure, OSError)


def test_nothing_is_written_after_the_end(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, rank=None)
    writer.write(Skipped("x", "y"))
    writer.close()
    writer.write(Skipped("late", "y"))
    assert len(list(tmp_path.iterdir())) == 1
    assert writer.path is not None
    assert len(logs.read(writer.path)["skipped"]) == 1


def test_an_argument_that_is_not_utf_8_costs_no_record(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, rank=None)
    writer.write(Skipped("caf\udce9", "naïve"))
    assert writer.path is not None
    assert logs.read(writer.path)["skipped"] == [{"what": "caf?", "why": "naïve", "graph": None}]
