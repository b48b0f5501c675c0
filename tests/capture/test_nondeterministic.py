"""The finding about a launch that gives other results from the same inputs, and the healthy twin of its program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

pytestmark = pytest.mark.filterwarnings("ignore")


def recorded(what: str, folder: Path) -> tuple[int, list[dict[str, Any]]]:
    """Return how many different results the program got, and what was found."""
    command = [*COMMAND, "run", "--level", "values", "-o", folder / what]
    program = ["--", "-m", "tests.capture.unsteady_program", what]
    run = python_processes.run([*command, *program], env=clean_environment(folder / "cache"), timeout=500)
    assert run.returncode == 0, run.stderr[-3000:]
    answer = python_processes.run([*COMMAND, "summary", folder / what, "--json"], timeout=100, check=True)
    return int(run.stdout.split()[0]), json.loads(answer.stdout)["findings"]


def test_a_sum_in_no_fixed_order_is_named_with_its_atomic_additions(tmp_path: Path) -> None:
    results, findings = recorded("healthy", tmp_path)
    assert (results, findings) == (1, [])

    results, (finding,) = recorded("sick", tmp_path)
    assert results > 1
    assert (finding["kind"], finding["severity"]) == ("nondeterministic", "info")
    assert "index_add" in finding["kernel"]
    assert finding["source"]["code"] == "return torch.zeros(PLACES).index_add(0, index, values.sin())"
    assert finding["evidence"]["causes"] == ["atomic additions"]
    assert (finding["evidence"]["other_sites"], finding["evidence"]["earlier_launch"] < finding["launch"]) == ([], True)
