"""The corpus is run four times for a whole test session, each time in one process of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.logs import Trace
from tests.programs import NAMES
from tests.variables import without_ours_and_torchs

ROOT = Path(__file__).resolve().parents[2]
FEW = {"adam", "cond", "graph_break"}
"""Programs of the corpus that each run of the tests records; tests of the others are slow."""


def programs(names: Iterable[str]) -> list[Any]:
    """Return the names as parameters of a test, with the mark of slow tests where they need it."""
    return [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in names]


def clean_environment(cache: Path, **more: str) -> dict[str, str]:
    """The environment of a test process: one thread, its own compile cache, of our variables only `more`."""
    single = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return {**without_ours_and_torchs(), **single, "TORCHINDUCTOR_CACHE_DIR": str(cache), **more}


@dataclass(frozen=True)
class Outcome:
    """What one run of one program left behind."""

    folder: Path
    name: str

    @cached_property
    def facts(self) -> dict[str, Any]:
        path = self.folder / f"{self.name}.json"
        assert path.exists(), "its process died before: " + (self.folder / "stderr").read_text()[-3000:]
        facts: dict[str, Any] = json.loads(path.read_text())
        assert facts["error"] is None, facts["error"]
        return facts

    @cached_property
    def results(self) -> list[list[Any]]:
        import torch

        loaded: list[list[Any]] = torch.load(self.folder / f"{self.name}.pt")
        return loaded

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.folder / self.name)

    @property
    def counts(self) -> list[Counter[str]]:
        return [Counter(step) for step in self.facts["counts"] if step]


Runs = Mapping[str, Outcome]


class Corpus:
    """Runs of the programs that this session's tests ask for."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        self.folder, self.names = folder, names
        self.cache = folder / "cache"

    def _run(self, mode: str, folder: str) -> Runs:
        target = self.folder / folder
        command = [sys.executable, "-m", "tests.capture.drive", mode, str(target), *self.names]
        target.mkdir(parents=True)
        done = python_processes.run(command, env=clean_environment(self.cache), timeout=3000)
        (target / "stderr").write_text(done.stderr)
        return {name: Outcome(target, name) for name in self.names}

    @cached_property
    def cold(self) -> Runs:
        return self._run("recorded", "cold")

    @cached_property
    def values(self) -> Runs:
        """Recorded with values, and each argument read again before each launch."""
        assert self.cold
        return self._run("values", "values")

    @cached_property
    def warm(self) -> Runs:
        assert self.cold
        return self._run("recorded", "warm")

    @cached_property
    def reference(self) -> Runs:
        """Not recorded. Compiled graphs are made anew; the compiled C++ of the recorded runs serves again."""
        assert self.warm
        for made_by_recorded_runs in ("fxgraph", "aotautograd"):
            shutil.rmtree(self.cache / made_by_recorded_runs, ignore_errors=True)
        return self._run("reference", "reference")

    def recorded(self, temperature: str) -> Runs:
        return self.cold if temperature == "cold" else self.warm


@pytest.fixture(scope="session")
def corpus(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    wanted = {
        item.callspec.params["name"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec") and "name" in item.callspec.params
    }
    return Corpus(tmp_path_factory.mktemp("corpus"), [name for name in NAMES if name in wanted])
