"""A log of ours and one of TORCH_TRACE, written together, are record by record those that each is written alone."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.capture.conftest import ROOT, clean_environment
from tests.capture.logs import LogRecord, read_log

pytestmark = pytest.mark.slow


PROGRAM = """
import os, sys, torch
backend, *folder = sys.argv[1:]
if folder or "STEPSCOPE_TRACE" in os.environ:
    from stepscope.tracer.runtime import outbox
    outbox.FLUSH_NS = outbox.FLUSH_STEP_NS = 10**15  # how many batches there are must not depend on time
if folder:
    import stepscope
    stepscope.trace(*folder).start()
else:
    from _stepscope_autostart import autostart
    autostart()
torch.compile(lambda x: (x @ x).sin(), backend=backend)(torch.ones(4, 4))
"""
IDS = ("frame_id", "frame_compile_id", "attempt", "compiled_autograd_id", "rank")
CHANGES = (
    (r"0x[0-9a-f]+", "ADDRESS"),
    (r"\bc[a-z2-7]{51}\b", "KEY"),
    (r"/[a-z0-9]{2}/(?=KEY)", "/"),
    (r"\btmp[a-z0-9_]{8}\b", "FOLDER"),
    (r"\b[a-z0-9_]{8}\.log\b", "LOG"),
    (r"\b[0-9a-f]{32,64}\b", "DIGEST"),
    (r',"TORCH_TRACE":"[^"]*"', ""),
    (r"\d+(\.\d+)?(e[-+]?\d+)?", "N"),
)
"""What differs between two runs of a program: times, addresses, names that were drawn by lot or made of such."""
ASKED = {
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
    "INDUCTOR_PROVENANCE": "1",
    "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",
}
"""A recorder has Inductor write provenance into code and log, into torch's log too: here every run asks for it.
Precompiled headers lie in one folder for all processes of a user: only the first run would record their compilation."""


@dataclass(frozen=True)
class Ran:
    """The records of both logs."""

    ours: list[LogRecord]
    torchs: list[LogRecord]


def run(folder: Path, backend: str, *, ours: str | None, torchs: bool) -> Ran:
    """`ours`: by what our log is asked for, the `variable` or a `call`; None: it is not."""
    folder.mkdir(parents=True)
    asked = {"TORCH_TRACE": str(folder / "torch")} if torchs else {}
    if ours == "variable":
        asked["STEPSCOPE_TRACE"] = str(folder / "ours")
    environment = clean_environment(folder / "cache", **ASKED, **asked)
    where = [str(folder / "ours")] if ours == "call" else []
    command = [sys.executable, "-c", PROGRAM, backend, *where]
    subprocess.run(command, cwd=ROOT, env=environment | _no_autoload(), check=True)
    return Ran(_records(folder / "ours"), _records(folder / "torch"))


def _records(folder: Path) -> list[LogRecord]:
    return [record for path in folder.glob("*.log") for record in read_log(path)]


def _no_autoload() -> dict[str, str]:
    """Not twice, where the package is installed."""
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def text_of(record: LogRecord) -> str:
    """The whole record: its ids as they are, the rest without what differs from run to run."""
    ids = {name: record.header[name] for name in IDS if name in record.header}
    rest = {name: value for name, value in record.header.items() if name not in ids and name != "has_payload"}
    text = f"{rest} {(record.payload or b'').decode()}"
    text = re.sub(r"os\.environ\[[^\n]*\n", "", text)
    text = re.sub(r"/[^\s'\"]*/(both|torch|ours)(?=/)", "RUN", text)
    for pattern, word in CHANGES:
        text = re.sub(pattern, word, text)
    return f"{ids} {text}"


def texts(records: list[LogRecord]) -> list[str]:
    return [text_of(record) for record in records]


def shared(records: list[LogRecord]) -> list[str]:
    """What both logs are to hold: not our own records, and neither torch's string table, which ours has from its begin,
    nor what its handler says of the file that it writes."""
    return [
        text_of(record)
        for record in records
        if not (record.artifact or "").startswith("stepscope_")
        and record.artifact != "torch_version"
        and "str" not in record.header
    ]


@pytest.fixture(scope="module")
def torchs_alone(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[LogRecord]]:
    """torch's log of a run with a backend that nobody else records: the same, however ours would be asked for."""
    folder = tmp_path_factory.mktemp("alone")
    return functools.cache(lambda backend: run(folder / backend / "torch", backend, ours=None, torchs=True).torchs)


@pytest.mark.parametrize(("by", "backend"), [("call", "eager"), ("variable", "inductor")])
def test_both_logs_are_those_that_each_is_alone(
    tmp_path: Path, torchs_alone: Callable[[str], list[LogRecord]], by: str, backend: str
) -> None:
    both = run(tmp_path / "both", backend, ours=by, torchs=True)
    torchs = torchs_alone(backend)
    ours = run(tmp_path / "ours", backend, ours=by, torchs=False).ours
    assert len(both.ours) > 20
    assert texts(both.ours) == texts(ours)
    assert texts(both.torchs) == texts(torchs)
    assert shared(both.ours) == shared(both.torchs)


def test_a_missing_and_a_doubled_record_are_seen() -> None:
    records = [LogRecord({"artifact": {"name": "x", "encoding": "string"}, "frame_id": n}, b"1.5 ms") for n in (0, 1)]
    assert texts(records) != texts(records[1:])
    assert texts(records) != texts([records[0], *records])
    assert text_of(records[0]) == text_of(LogRecord(records[0].header, b"2.5 ms"))
    assert text_of(records[0]) != text_of(LogRecord(records[0].header, b"2.5 us"))
