"""Findings are kept beside the index, so that the first page of an indexed trace waits for none of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepscope.viewer import findings
from stepscope.viewer.findings import all_findings, kept_findings
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.cache_folder import KEPT_SUFFIX, indexes_folder
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.trace import Trace
from tests.logs import overflow_log
from tests.logs.rich import write_rich

pytestmark = pytest.mark.slow


def kept_files() -> list[Path]:
    return [*indexes_folder().glob(f"*{KEPT_SUFFIX}")]


def found_in(path: Path) -> list[Finding]:
    with open_trace(path) as trace:
        return all_findings(trace)


def never(_: Trace) -> list[Finding]:
    raise AssertionError("the findings are searched for again")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return overflow_log.recorded().write(tmp_path / "small.log")


def test_the_findings_of_an_index_are_found_once(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = found_in(log)
    assert [finding.kind for finding in first] == ["nonfinite"]
    assert first[0].links
    monkeypatch.setattr(findings, "_find_all", never)
    assert found_in(log) == first


def test_findings_of_a_process_that_may_die_later_are_not_kept(tmp_path: Path) -> None:
    assert len(found_in(write_rich(tmp_path / "rich"))) > 5
    assert kept_files() == []


def test_a_log_that_has_changed_is_searched_again(log: Path) -> None:
    before = found_in(log)
    overflow_log.recorded(graphs=2).write(log)
    assert found_in(log) != before
    assert len(kept_files()) == 1


def test_other_code_searches_again(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found_in(log)
    monkeypatch.setattr(kept_findings, "_key", lambda: b"another version")
    monkeypatch.setattr(findings, "_find_all", lambda _: [])
    assert found_in(log) == []


@pytest.mark.parametrize(
    "damage", [lambda text: text[:-20], lambda text: text.replace(b'"kind"', b'"sort"'), lambda _: b""]
)
def test_a_damaged_file_is_not_believed(log: Path, damage: object) -> None:
    first = found_in(log)
    (file,) = kept_files()
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    assert found_in(log) == first


def test_a_finding_that_json_would_change_is_not_kept(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = Finding("growth", "info", "title", "rule", {"pair": (1, 2)}, "/")
    monkeypatch.setattr(findings, "_find_all", lambda _: [odd])
    assert found_in(log) == [odd]
    assert kept_files() == []
