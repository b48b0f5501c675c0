"""Findings about trends over steps, from the recording of a program that has them and of its healthy twin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.findings import MODULES
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

ABOUT_VALUES = {module.rpartition(".")[2] for module in MODULES if module.startswith("values.")}

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


def findings_of(what: str, folder: Path, cache: Path) -> dict[str, Any]:
    options = ["--level", "values", "-o", folder / what]
    command = [*COMMAND, "run", *options, "--", "-m", "tests.capture.trend_program", what]
    run = python_processes.run(command, env=clean_environment(cache), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", folder / what, "--json"], check=True)
    found = [one for one in json.loads(answer.stdout)["findings"] if one["kind"] in ABOUT_VALUES]
    return {one["kind"]: one for one in found if one["severity"] != "info"}


def test_what_goes_wrong_over_steps_is_named(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert findings_of("healthy", tmp_path, cache) == {}

    (still,) = findings_of("still", tmp_path, cache).values()
    assert (still["kind"], still["source"]["code"]) == (
        "lost_update",
        "total.add_(x.mean(0).to(total.dtype), alpha=0.001)",
    )
    assert still["title"].startswith("total (arg")
    assert "was updated in 10 steps and never changed" in still["title"]

    sick = findings_of("sick", tmp_path, cache)
    assert set(sick) == {"exploding_values", "dead_activation", "lost_update"}
    assert "grew by a factor of 9 per step from step 0 on" in sick["exploding_values"]["title"]
    assert sick["lost_update"]["title"].startswith("self.calls (")
    assert "stopped at 256 in step 5: adding 1 to it has no effect in bfloat16" in sick["lost_update"]["title"]
    assert sick["dead_activation"]["source"]["code"] == "hidden: Tensor = torch.relu(self.first(x))"
