"""The first 500 cases of the fuzz harness: nothing raises, nothing else is lost, and every page answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.cases import EDITS, bases, case
from tests.fuzz.check import GROUP, failing
from tests.logs.plain_reader import records

pytestmark = pytest.mark.slow


CASES = 500


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.parametrize("first", range(0, CASES, GROUP))
def test_damage_costs_its_lines_only(first: int) -> None:
    numbers = range(first, first + GROUP)
    found = failing([case(number, bases()) for number in numbers])
    assert not found, "\n\n".join(f"{case and case[:3]}\n{error}" for case, error in found)


def test_a_report_holds_what_is_damaged() -> None:
    assert failing([case(number, bases()) for number in range(10)], with_report=True) == []


def test_a_case_is_its_number() -> None:
    cases = [case(number, bases()) for number in range(400)]
    assert cases == [case(number, bases()) for number in range(400)]
    assert {*EDITS, "gz", "zst", "ring"} == {one.mutation for one in cases}
    unchanged = [one for one in cases if one.data == bases()[one.base].data and one.mutation != "ring"]
    assert len(unchanged) < 30


def test_the_check_sees_a_record_that_is_lost() -> None:
    """A log whose text differs from what is compared with it stands for a reader that loses a record."""
    whole = next(one for one in map(lambda number: case(number, bases()), range(400)) if one.mutation == "lost record")
    assert failing([whole]) == []
    other = whole._replace(data=bases()[whole.base].data, packed=whole.data)
    assert len(records(other.data)) == len(records(whole.data)) + 1
    ((found, error),) = failing([other])
    assert found is other
    assert "AssertionError" in error
