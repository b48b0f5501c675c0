"""tlparse files our artifacts with the compile that they are about."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.capture.logs import LogRecord, read_log
from tests.capture.test_tlparse import tlparse

pytestmark = pytest.mark.slow


PROGRAM = """
import sys, torch, stepscope

def broken(x, w):
    y = (x @ w).relu()
    torch._dynamo.graph_break()
    return (y.sin() @ w).sum()

def one_more(x):
    return (x * 2).cos()

def compiled_backward(x, w):
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
        (x @ w).sin().sum().backward()

w = torch.randn(4, 4, requires_grad=True)
with stepscope.trace(sys.argv[1]):
    compiled = torch.compile(broken, backend=sys.argv[2])
    for _ in range(2):
        compiled(torch.ones(4, 4), w).backward()
    torch.compile(one_more, backend=sys.argv[2])(torch.ones(4))
    compiled_backward(torch.ones(4, 4), w)
"""
WHOLE = {
    *("run", "launches", "call_gaps", "sampled_lines", "line_samples", "lifetimes", "values", "step_marks", "growth"),
    *("overhead", "end", "failure", "kept_tensors"),
}
"""Kinds of records that are about no compile, or about many."""
Ids = tuple[Any, ...]


def ids_of(record: LogRecord) -> Ids:
    names = ("compiled_autograd_id", "frame_id", "frame_compile_id", "attempt")
    return tuple(record.header.get(name) for name in names)


@pytest.fixture(scope="module", params=["eager", "inductor"])
def log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("log")
    environment = clean_environment(folder / "cache", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    command = [sys.executable, "-c", PROGRAM, str(folder / "logs"), request.param]
    python_processes.run(command, env=environment, check=True)
    (path,) = (folder / "logs").glob("*.log")
    return path


def test_each_record_names_the_compile_and_attempt_of_its_graph(log: Path) -> None:
    records = read_log(log)
    ours = [record for record in records if (record.artifact or "").startswith("stepscope_")]
    torchs = {ids_of(record) for record in records if record not in ours}
    of_graph: dict[int, Ids] = {}
    for record in ours:
        kind = (record.artifact or "").removeprefix("stepscope_")
        ids = ids_of(record)
        if kind in WHOLE:
            assert ids == (None,) * 4, kind
            continue
        assert ids in torchs, kind
        number = int(kind.rpartition("_")[2]) if kind.startswith("output_code_") else record.json()["graph"]
        assert of_graph.setdefault(number, ids) == ids, kind
    assert {ids[3] for ids in of_graph.values()} == {0, 1}, "a graph break makes Dynamo begin again"
    assert any(ids[0] is not None for ids in of_graph.values()), "compiled autograd"


def test_tlparse_shows_them_there(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    subprocess.run([tlparse(), str(log), "-o", str(out), "--no-browser"], capture_output=True, check=True)
    expected: defaultdict[str, list[str]] = defaultdict(list)
    for record in read_log(log):
        if record.artifact and record.artifact.startswith("stepscope_"):
            folder = "_".join("-" if one is None else str(one) for one in ids_of(record))
            expected[folder].append(record.artifact)
    assert len(expected) > 3
    for folder, names in expected.items():
        shown = [path.stem.rpartition("_")[0] for path in (out / folder).glob("stepscope_*")]
        assert sorted(shown) == sorted(names), folder
    assert {name.removeprefix("stepscope_") for name in expected["-_-_-_-"]} <= WHOLE
