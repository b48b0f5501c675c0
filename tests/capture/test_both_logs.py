"""A log of ours and one of TORCH_TRACE, written together, are those that each is written alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.capture.conftest import ROOT, clean_environment
from tests.capture.logs import LogRecord, read_log

PROGRAM = """
import sys, torch
if sys.argv[1:]:
    import stepscope
    stepscope.trace(sys.argv[1]).start()
else:
    from _stepscope_autostart import autostart
    autostart()
torch.compile(lambda x: (x @ x).sin(), backend="eager")(torch.ones(4, 4))
"""


def run(folder: Path, ours: bool, torchs: bool, *arguments: str) -> tuple[list[LogRecord], list[LogRecord]]:
    """The records of both logs."""
    environment = clean_environment(folder / "cache", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    if torchs:
        environment["TORCH_TRACE"] = str(folder / "torch")
    if ours and not arguments:
        environment["STEPSCOPE_TRACE"] = str(folder / "ours")
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], cwd=ROOT, env=environment | _no_autoload(), check=True)
    return _records(folder / "ours"), _records(folder / "torch")


def _records(folder: Path) -> list[LogRecord]:
    return [record for path in folder.glob("*.log") for record in read_log(path)]


def _no_autoload() -> dict[str, str]:
    """Not twice, where the package is installed."""
    return {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}


def kinds(records: list[LogRecord]) -> list[Any]:
    """What each record is; without ours, and the one that torch's handler adds about itself."""
    found = []
    for record in records:
        name = record.artifact or ""
        if name.startswith("stepscope_") or name == "torch_version" or "str" in record.header:
            continue
        kind = sorted(key for key in record.header if key not in ("has_payload", "rank", "stack"))
        if "chromium_event" in record.header and record.payload is not None:
            event = json.loads(record.payload)
            kind += [event["name"], event["ph"]]
        found.append((kind, name))
    return found


@pytest.mark.parametrize("by", ["variable", "call"])
def test_both_logs_hold_what_each_holds_alone(tmp_path: Path, by: str) -> None:
    (tmp_path / "both").mkdir()
    arguments = [] if by == "variable" else [str(tmp_path / "both" / "ours")]
    ours, torchs = run(tmp_path / "both", True, True, *arguments)
    _, alone = run(tmp_path / "torch", False, True)
    arguments = [] if by == "variable" else [str(tmp_path / "ours" / "ours")]
    single, _ = run(tmp_path / "ours", True, False, *arguments)
    assert kinds(ours) == kinds(torchs) == kinds(single)
    without_provenance = [one for one in kinds(torchs) if "provenance" not in one[1]]
    assert without_provenance == [one for one in kinds(alone) if "provenance" not in one[1]]
