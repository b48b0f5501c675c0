"""Processes with dynamic sizes that die in operators: what the verdict says of the launch is what it was given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.test_deaths import COMMAND

DEATHS = {"made": [16, 17], "in_place": [17], "several": [18]}
"""As the program has them: operator -> sizes of the calls in which a process dies in it."""
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[int, list[Any]], list[dict[str, Any]]]:
    """Of each process the last account that it gave, and the crashes."""
    folder = tmp_path_factory.mktemp("dynamic")
    command = [*COMMAND, "run", "--level", "values", "-o", str(folder / "logs"), "--", "-m"]
    environment = clean_environment(folder / "cache")
    run = python_processes.run([*command, "tests.capture.dying_dynamic_program"], env=environment, timeout=500)
    assert run.returncode == 139, run.stderr[-3000:]
    summary = python_processes.run([*COMMAND, "summary", "--json", folder / "logs"], check=True)
    accounts = {
        row[0]: row[1:] for line in run.stdout.splitlines() if line.startswith("[") for row in [json.loads(line)]
    }
    return accounts, [one for one in json.loads(summary.stdout)["findings"] if one["kind"] == "crash"]


def test_each_death_tells_the_sizes_of_its_call(told: Any) -> None:
    accounts, crashes = told
    assert len(accounts) == len(crashes) == 4
    found: dict[str, list[int]] = {}
    for crash in crashes:
        name, size, storage_bytes, address = accounts[crash["evidence"]["pid"]]
        assert crash["kernel"].startswith(f"torch.ops.sized.{name}.")
        row = crash["evidence"]["arguments"][0]
        assert (row["size"], row["storage_bytes"]) == (size, storage_bytes)
        found.setdefault(name, []).append(size[0])
        if row["address_in_call"]:
            assert row["address"] == address
        given = [one["size"] for one in crash["evidence"]["arguments"] if one["role"] != "out"]
        assert given == [size] * len(given)
    assert {name: sorted(sizes) for name, sizes in found.items()} == DEATHS


def test_what_an_operator_would_have_returned_is_not_there(told: Any) -> None:
    _, crashes = told
    bound = [one for crash in crashes for one in crash["evidence"]["arguments"] if one["role"] == "out"]
    assert bound
    assert all("size" not in one and "address" not in one for one in bound)
    assert {one["unseen"] for one in bound} == {"not created yet: the launch did not return"}
