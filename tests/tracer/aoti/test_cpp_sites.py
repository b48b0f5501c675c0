"""Launches of C++ code, end to end: what they compute and which numbers they are given, as those of Python wrappers."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store import sql
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.tracer.aoti.test_capture import STEPSCOPE, kinds

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="C++ code is compiled with g++"),
    pytest.mark.slow,
]
SITES = """
    SELECT s.source_nodes, s.aten, coalesce(list(c.name || '=' || c.expression ORDER BY c.scalar)
    FILTER (c.scalar IS NOT NULL), []) FROM sites s LEFT JOIN scalars c ON c.site = s.site
    WHERE s.graph = ? GROUP BY s.site, s.source_nodes, s.aten ORDER BY s.site
"""


def run(folder: Path, level: str, *names: str) -> Path:
    program = [sys.executable, Path(__file__).with_name("cpp_sites.py"), folder, *names]
    command = [*STEPSCOPE, "run", "--aoti", level, "-o", folder / "trace", "--", *program]
    done = python_processes.run(command, timeout=900, cwd=folder, env=clean_environment(folder / "cache"))
    assert done.returncode == 0, done.stderr[-2000:]
    return folder / "trace"


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("values"), "values", "python", "cpp", "package")


def sites(trace: Any) -> list[list[tuple[list[str], list[str], list[str]]]]:
    """Of each graph that has any: first those of Python wrappers."""
    graphs = sql.rows(
        trace,
        "SELECT g.graph FROM graphs g JOIN sites USING (graph) GROUP BY g.graph, g.wrapper_key"
        " ORDER BY starts_with(g.wrapper_key, 'printed_'), g.graph",
    )
    return [
        [
            (json.loads(nodes), json.loads(operators), numbers)
            for nodes, operators, numbers in sql.rows(trace, SITES, one)
        ]
        for one in graphs
    ]


def test_launches_of_cpp_code_have_what_those_of_python_have(values: Path) -> None:
    with open_trace(values) as trace:
        python, cpp, package = sites(trace)
    computed = [[(nodes, operators) for nodes, operators, _ in graph] for graph in (python, cpp, package)]
    assert len(computed[0]) == 5
    assert all(nodes and operators for nodes, operators in computed[0])
    assert computed[1] == computed[0]
    assert [operators for _, operators in computed[2]] == [operators for _, operators in computed[0]]
    assert all(nodes for nodes, _ in computed[2])


def test_launches_of_cpp_code_have_their_numbers(values: Path) -> None:
    with open_trace(values) as trace:
        _, cpp, package = sites(trace)
        symbols = sql.rows(
            trace, "SELECT symbol, value FROM call_symbols JOIN symbol_values USING (assignment) ORDER BY call"
        )
    assert cpp[0][2] == package[0][2] == ["beta=1", "alpha=1"]
    (symbol,) = {symbol for symbol, _ in symbols}
    assert [str(value) for _, value in symbols] == ["8", "12"]
    assert [one for site in package for one in site[2]].count(f"ks0={symbol}") == 2
    assert ["dim=0", "dtype=None"] in [site[2] for site in cpp]


def test_an_unused_input_is_a_value_of_its_call_and_nothing_is_wrong(values: Path) -> None:
    with open_trace(values) as trace:
        rows = sql.rows(trace, "SELECT numel, min, max FROM input_rows ORDER BY value")
        assert kinds(summary(trace)) & {"nonfinite", "uninitialised_read"} == set()
    assert (3, 0.0, 0.0) in rows


@pytest.mark.parametrize("level", ["launches", "save"])
def test_names_and_saved_tensors_lead_to_the_code_as_well(tmp_path: Path, level: str) -> None:
    with open_trace(run(tmp_path, level, "package")) as trace:
        (package,) = sites(trace)
    assert len(package) == 5
    assert all(nodes and operators for nodes, operators, _ in package)
    assert package[0][2] == ["beta=1", "alpha=1"]
