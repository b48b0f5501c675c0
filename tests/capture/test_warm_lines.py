"""Lines of model source on warm caches are those of this run; C++ kernels say what they compute."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.store.open import open_trace
from tests.capture.logs import Trace
from tests.capture.scripts import Scripts

pytestmark = pytest.mark.slow


PROGRAM = """
import torch


def f(x):
    return (x @ x - 1e9).log()


torch.set_num_threads(1)
torch.compile(f)(torch.rand(8, 8))
"""
COMMENTS = "# a comment line\n" * 5
LINE = "return (x @ x - 1e9).log()"
EDITED = "return torch.log(x @ x - 1e9)"
TRAINED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.a(x).relu()
        x = self.b(x).relu()
        x = self.b(x).relu() + x
        return (x - 1e9).log().sum()


torch.set_num_threads(1)
model = torch.compile(Model(), dynamic=True)
model(torch.rand(4, 8)).backward()
"""


class Programs:
    """Programs that are recorded one after another with one compile cache, each in a process of its own."""

    def __init__(self, folder: Path, scripts: Scripts) -> None:
        self.folder, self.cache, self._scripts, self._runs = folder, folder / "cache", scripts, 0

    def record(self, program: str, name: str = "model.py") -> Path:
        """The folder of the log."""
        self._runs += 1
        log = self.folder / f"log{self._runs}"
        path = self.folder / name
        path.write_text(program)
        body = f"""
        import runpy
        with stepscope.trace(FOLDER, level="values"):
            runpy.run_path({str(path)!r}, run_name="__main__")
        """
        done = self._scripts.run(log, body, TORCHINDUCTOR_CACHE_DIR=str(self.cache))
        assert (done.returncode, done.stderr) == (0, "")
        return log

    def forget(self, *folders: str) -> None:
        for folder in folders:
            shutil.rmtree(self.cache / folder)


def lines(log: Path) -> dict[tuple[str | None, str | None], set[tuple[str, int, str]]]:
    """Phase and handle of each launch site -> its lines of the model."""
    trace = Trace(log)
    graphs = {graph["graph"]: graph for graph in trace.of("graph")}
    found = {}
    for record in trace.of("provenance"):
        graph = graphs[record["graph"]]
        for site in record["sites"]:
            frames = [record["frames"][stack[-1]] for stack in site["stacks"]]
            places = {(Path(frame["file"]).name, frame["line"], frame["code"]) for frame in frames}
            found[graph["phase"], graph["sites"][site["site"]]["handle"]] = places
    return found


def changed(log: Path) -> list[Mapping[str, Any]]:
    return [one for record in Trace(log).of("provenance") for one in record["changed"]]


def is_warm(log: Path) -> bool:
    return all(graph["cached"] for graph in Trace(log).of("graph"))


def source(programs: Programs, log: Path) -> dict[str, Any]:
    """Of the only finding; the text for people names the same line."""
    with open_trace(log, index_dir=programs.folder / "index") as trace:
        (finding,) = summary(trace)["findings"]
        text = " ".join(summary_text(trace).split())
    found: dict[str, Any] = finding["source"]
    assert f"{Path(found['file']).name}:{found['line']}" in text
    assert (found["as_compiled"] or "").split(" it was ")[0] in text
    assert ("since changed" in text) == bool(found["as_compiled"])
    return found


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


@pytest.fixture(scope="module")
def programs(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """The cache holds what was compiled of `PROGRAM`."""
    programs = Programs(tmp_path_factory.mktemp("warm"), scripts)
    log = programs.record(PROGRAM)
    assert not is_warm(log)
    assert {line for _, line, _ in set().union(*lines(log).values())} == {6}
    return programs


def test_lines_that_have_moved(programs: Programs) -> None:
    log = programs.record(COMMENTS + PROGRAM)
    assert is_warm(log)
    assert set().union(*lines(log).values()) == {("model.py", 11, LINE)}
    found = source(programs, log)
    assert (found["line"], found["code"], found["as_compiled"]) == (11, LINE, None)


def test_a_graph_that_another_program_has_compiled(programs: Programs) -> None:
    for line, name in ((LINE, "second.py"), (EDITED, "third.py")):
        log = programs.record(COMMENTS * 2 + PROGRAM.replace(LINE, line), name)
        assert is_warm(log)
        found = source(programs, log)
        assert (Path(found["file"]).name, found["line"], found["code"]) == (name, 16, line)


def test_a_line_that_was_edited_says_what_it_was(programs: Programs) -> None:
    log = programs.record(COMMENTS + PROGRAM.replace(LINE, EDITED))
    assert is_warm(log)
    found = source(programs, log)
    assert (found["line"], found["code"]) == (11, EDITED)
    assert found["as_compiled"].startswith("as compiled on 20")
    assert found["as_compiled"].endswith(f"model.py:6 {LINE}, since changed")


def test_a_line_that_is_not_found_is_marked(programs: Programs) -> None:
    """Without what stepscope keeps beside the cache, an edited line cannot be told to be the same."""
    kept = programs.cache / "stepscope"
    kept.rename(programs.folder / "kept")
    try:
        log = programs.record(COMMENTS + PROGRAM)
        assert (source(programs, log)["line"], source(programs, log)["as_compiled"]) == (11, None)
        log = programs.record(COMMENTS + PROGRAM.replace(LINE, EDITED))
        assert is_warm(log)
        found = source(programs, log)
        assert (found["line"], found["code"]) == (6, LINE)
        assert found["as_compiled"].startswith("as compiled on 20")
        assert found["as_compiled"].endswith("UTC, since changed")
        assert changed(log) == [{"frame": 0, "was": None}]
    finally:
        (programs.folder / "kept").rename(kept)


def test_forward_and_backward_as_if_nothing_came_from_a_cache(scripts: Scripts, tmp_path: Path) -> None:
    programs = Programs(tmp_path, scripts)
    programs.record(TRAINED)
    edited = COMMENTS + TRAINED.replace("x = self.b(x).relu() + x", "x = torch.relu(self.b(x)) + x")
    warm = programs.record(edited)
    assert is_warm(warm)
    programs.forget("fxgraph", "aotautograd")
    cold = programs.record(edited)
    assert not is_warm(cold)
    assert lines(warm) == lines(cold)
    assert {phase for phase, _ in lines(warm)} == {"forward", "backward"}
    assert changed(warm)
    assert not changed(cold)


def test_cpp_kernels_say_what_they_compute_cold_and_warm(programs: Programs) -> None:
    cold, warm = programs.folder / "log1", programs.record(PROGRAM)
    for log in (cold, warm):
        sites = {site["kernel"]: site for graph in Trace(log).of("graph") for site in graph["sites"]}
        product, fused = sites["extern_kernels.mm"], sites["cpp_fused_log_sub_0"]
        assert (product["source_nodes"], product["aten"]) == (["matmul"], ["aten.mm"])
        assert (fused["source_nodes"], fused["aten"]) == (["sub", "log"], ["aten.sub", "aten.log"])
