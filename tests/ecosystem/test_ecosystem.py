"""Each program, recorded without a change of its code, gives its own result and a log in which nothing is wrong."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.ecosystem.catalogue import NAMES, entry, located
from tests.ecosystem.running import Comparison

pytestmark = pytest.mark.slow


QUICK = ("forking_server_exit", "gan", "reinforcement")
"""Programs that are run in every run of the tests; the others are run with ``-m ecosystem``."""


PARAMETERS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.ecosystem) for name in NAMES]


@pytest.mark.parametrize("name", PARAMETERS)
def test_recorded_program(name: str, tmp_path: Path) -> None:
    program = located(name)
    for package in entry(program).packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the package {package} is not installed")
    comparison = Comparison(program, tmp_path, "launches")
    assert comparison.plain.code == 0, comparison.plain.stderr
    told = comparison.by_command()
    assert told.same, told.recorded
    assert told.extra_stderr == []
    assert told.problems == []
    assert told.warnings == []
    kind = entry(program).steps_of
    assert sum(number for (_, of_kind, _), number in told.steps.items() if of_kind == kind) == told.iterations
