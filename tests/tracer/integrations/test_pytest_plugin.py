"""`pytest --stepscope`: a folder for each test that compiles, and the report of one that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from stepscope.tracer.integrations.pytest_plugin import folder_name
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.slow


IS_INSTALLED = any(one.name == "stepscope" for one in entry_points(group="pytest11"))
"""Whether pytest finds the plugin by itself, as in an installation that is newer than the plugin."""
TESTS = """
import os, sys
import pytest

def compiled(text):
    import torch
    print("said by the test")
    assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2.0, 2.0], text

def test_plain():
    pass

def test_plain_that_fails():
    assert False

@pytest.mark.parametrize("name", ["a/b", "a b"])
def test_compiles(name, capsys):
    compiled(name)
    assert capsys.readouterr().out == "said by the test\\n"

def test_imports_torch():
    import torch
    assert torch.ones(2).sum() == 2

def test_compiles_and_fails():
    compiled("first")
    raise ValueError("<the reason>")
"""
NODE = "tests/test_it.py::test_compiles"


def run(folder: Path, *words: str, tests: str = TESTS) -> subprocess.CompletedProcess[str]:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_it.py").write_text(tests)
    plugin = [] if IS_INSTALLED else ["-p", "_stepscope_pytest"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *plugin, *words]
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "STEPSCOPE"))}
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["--stepscope", "tests"], "stepscope_tests"),
        (["-n", "2", "--stepscope=out", "tests"], "out"),
    ],
    ids=["option first", "two workers"],
)
def test_each_test_that_compiles_has_a_folder(tmp_path: Path, words: list[str], folder: str) -> None:
    if "-n" in words:
        pytest.importorskip("xdist")
    done = run(tmp_path, *words)
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    names = {folder_name(f"{NODE}{rest}") for rest in ("[a/b]", "[a b]", "_and_fails")}
    assert {path.name for path in (tmp_path / folder).iterdir()} == names
    assert all(len([*(tmp_path / folder / name).glob("*.log")]) == 1 for name in names)
    failed = tmp_path / folder / folder_name(f"{NODE}_and_fails")
    assert [*(tmp_path / folder).rglob("*.html")] == [failed / "report.html"]
    assert "ValueError: &lt;the reason&gt;" in (failed / "report.html").read_text("utf-8")
    assert "- stepscope -" in done.stdout
    assert f"The report of the recorded run is {failed / 'report.html'}" in done.stdout
    assert done.stdout.count("said by the test") == 1


def test_without_the_option_nothing_of_the_package_is_imported(tmp_path: Path) -> None:
    loaded = "import sys\ndef test_it():\n    assert not {'torch', 'stepscope'} & {*sys.modules}\n"
    done = run(tmp_path, "tests", tests=loaded)
    assert "1 passed" in done.stdout, done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tests"]


def test_with_the_option_torch_is_imported_by_tests_alone(tmp_path: Path) -> None:
    loaded = "import sys\ndef test_it():\n    assert 'torch' not in sys.modules\n"
    done = run(tmp_path, "tests", "--stepscope", tests=loaded)
    assert "1 passed" in done.stdout, done.stdout


def test_names_of_folders_are_short_and_differ() -> None:
    tests = [f"a/test_x.py::test_y[{'z' * 400}{number}-/../..]" for number in range(3)]
    names = [folder_name(test) for test in tests]
    assert len({*names}) == 3
    assert all(len(name) < 120 and "/" not in name and ".." not in name for name in names)
