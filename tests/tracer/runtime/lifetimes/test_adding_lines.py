"""The only statement of a source file that adds to a container."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from stepscope.tracer.runtime.lifetimes.adding_lines import MOST_BYTES, Added, adding_line


def line(tmp_path: Path, source: str, name: str = "kept") -> int | None:
    file = tmp_path / "source.py"
    file.write_text(source)
    return adding_line(Added(str(file), name))


def test_the_only_statement(tmp_path: Path) -> None:
    assert line(tmp_path, "kept = []\nfor n in range(3):\n    kept.append(n)\n") == 3


def test_several_statements(tmp_path: Path) -> None:
    assert line(tmp_path, "kept = []\nkept.append(1)\nkept += [2]\n") is None


def test_the_variable_of_another_function(tmp_path: Path) -> None:
    source = "kept = {}\ndef f():\n    kept = {}\n    kept[1] = 2\ndef g():\n    kept[1] = 2\n"
    assert line(tmp_path, source) == 6


def test_deep_expressions(tmp_path: Path) -> None:
    source = "kept = []\nkept.append(1)\nx = " + " + ".join(["1"] * 2500) + "\n"
    assert line(tmp_path, source) in (2, None), "Python's parser may give up"


@pytest.mark.parametrize("source", ["kept.append(", "kept.append(1)\0", f"kept.append(1)  #{'x' * MOST_BYTES}"])
def test_what_is_no_source_or_too_large(tmp_path: Path, source: str) -> None:
    assert line(tmp_path, source) is None


def test_no_file(tmp_path: Path) -> None:
    assert adding_line(Added(str(tmp_path / "none.py"), "kept")) is None


def test_a_place_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert line(tmp_path, "kept.append(1)") == 1
    monkeypatch.setattr(ast, "parse", lambda *_: pytest.fail("read again"))
    assert adding_line(Added(str(tmp_path / "source.py"), "kept")) == 1
