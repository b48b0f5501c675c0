"""Deaths at random moments: every log opens, no step that ended is lost, the launch in flight is named right.

``STEPSCOPE_TEST_KILLS=200`` kills more often than the usual run.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.sources import find_logs
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.tracer.hand_made import column

pytestmark = pytest.mark.slow


KILLS = int(os.environ.get("STEPSCOPE_TEST_KILLS", "20"))
SEED = int(os.environ.get("STEPSCOPE_TEST_SEED", "0"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("kills")
    command = [sys.executable, "-m", "tests.capture.kill_program", str(made), str(KILLS), str(SEED)]
    done = python_processes.run(command, env=clean_environment(made / "cache"), timeout=240 + 3 * KILLS)
    if "Unable to handle autograd's threading" in done.stderr:
        pytest.skip("this build of torch computes no gradients in a process that was forked after a backward pass")
    assert done.returncode == 0, done.stderr[-3000:]
    return made


def problems_of(folder: Path, death: dict[str, Any]) -> list[str]:
    """What the log of a victim says otherwise than the account of its stand-ins."""
    (path,) = folder.glob(f"*_{death['pid']}_*.log")
    rows = read_logs(find_logs(path))
    sites = {row["site"]: row for row in rows.tables["sites"]}
    (last,) = [row for row in rows.tables["ring_launches"] if row["role"] == "last_started"]
    in_flight = [row for row in rows.tables["ring_launches"] if row["role"] == "in_flight"]
    launches, kernel = len(column(rows, "launches", "launch")), sites[last["site"]]["kernel"]
    begun = [row["step"] for row in rows.tables["steps"] if row["start_ns"] is not None]
    is_inside = death["returned"] == death["began"] - 1
    found = [f"{row}" for row in rows.tables["problems"]]
    # The recorder sees a launch begin just before the stand-in does, and return just after it.
    if launches not in ({death["began"]} if is_inside else {death["began"], death["began"] + 1}):
        found.append(f"{launches} launches, not {death['began']}")
    if launches == death["began"] and kernel != death["name"]:
        found.append(f"in {kernel}, not in {death['name']}")
    if (is_inside or launches > death["began"]) and (
        last["returned"] or [row["launch"] for row in in_flight] != [last["launch"]]
    ):
        found.append(f"the launch in flight is said to be {in_flight}, not {last}")
    if begun != list(range(death["steps"])) and begun != list(range(death["steps"] + 1)):
        found.append(f"{len(begun)} steps, not {death['steps']}")
    if is_inside and last["step"] != death["steps"]:
        found.append(f"in step {last['step']}, not {death['steps']}")
    return found


def test_no_death_loses_anything(folder: Path) -> None:
    deaths = json.loads((folder / "deaths.json").read_text())
    assert len(deaths) == KILLS
    wrong = {death["pid"]: found for death in deaths if (found := problems_of(folder, death))}
    assert not wrong, (wrong, [death for death in deaths if death["pid"] in wrong])
    assert len(Counter(death["signal"] for death in deaths)) == 3
    assert any(death["returned"] < death["began"] for death in deaths)
