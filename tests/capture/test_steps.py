"""The steps of a recording are the iterations of the program, for programs of many kinds."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from stepscope.viewer.overview.queries.runs import list_steps
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.step_programs import PROGRAMS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All programs that are asked for, recorded one after the other in one process."""
    folder = tmp_path_factory.mktemp("steps")
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and hasattr(item, "callspec")]
    names = [str(item.callspec.params["name"]) for item in items if item.path == Path(__file__)]
    command = [sys.executable, "-m", "tests.capture.step_programs", str(folder), *names]
    environment = clean_environment(folder / "cache", TORCHINDUCTOR_FORCE_DISABLE_CACHES="1")
    (folder / "stderr").write_text(python_processes.run(command, env=environment, timeout=900).stderr)
    return folder


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_are_the_iterations(recorded: Path, name: str) -> None:
    assert (recorded / name).is_dir(), (recorded / "stderr").read_text()[-3000:]
    with open_trace(recorded / name, index_dir=recorded) as trace:
        steps = list_steps(trace)
    assert Counter(step.kind for step in steps) == PROGRAMS[name][1]
    first = min(steps, key=lambda step: step.start_ns)
    assert first.compile_ns
    assert all(step.duration_ns is not None and step.duration_ns >= 0 for step in steps)
