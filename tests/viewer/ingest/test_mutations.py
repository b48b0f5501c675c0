"""One value that cannot be costs no more than the record that holds it: nothing raises, no page fails, and all other
records are there."""

from __future__ import annotations

from pathlib import Path
from random import Random

import orjson
import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.overview.summary import summary, summary_text
from stepscope.viewer.records.queries.artifacts import list_records
from stepscope.viewer.store.open import open_trace
from tests.logs.mutations import mutated, mutated_ring
from tests.logs.plain_reader import read_plainly
from tests.logs.poisoned import poisoned_logs
from tests.logs.synthetic import LogBuilder, recorded
from tests.viewer.client import Client
from tests.viewer.crash.test_crash import IN_STEP_THREE, PID, device_ring, process_end, ring
from tests.viewer.crawling import EVERY_PAGE, crawl

pytestmark = pytest.mark.slow


LOGS = {**poisoned_logs(), "plain": recorded()}
PER_CASE = 15
"""Records that are changed in one log."""
PAGES = 30


def check(path: Path, records: int) -> None:
    with open_trace(path) as trace:
        assert list_records(trace, limit=0).total == records
        orjson.dumps(summary(trace))
        assert summary_text(trace)
        visited = crawl(Client(trace), most=PAGES, start=EVERY_PAGE)
    failed = {address: status for address, status in visited.items() if status >= 400}
    assert not failed, failed


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", LOGS)
def test_a_value_costs_its_record_only(name: str, seed: int, tmp_path: Path) -> None:
    data = mutated(LOGS[name].data, Random(f"{name} {seed}"), PER_CASE)
    (tmp_path / "x.log").write_bytes(data)
    try:
        check(tmp_path / "x.log", len(read_plainly(data)))
    except StepscopeError as error:
        if "format version" not in str(error):
            raise


@pytest.mark.parametrize("seed", range(12))
def test_a_word_of_a_launch_ring_costs_its_block_only(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    log: LogBuilder = recorded(end=False, pid=PID).record(process_end())
    log.write(tmp_path / "x.log")
    beside = device_ring(2) if seed % 2 else ring([IN_STEP_THREE])
    (tmp_path / "x.log.ring").write_bytes(mutated_ring(beside, random, 1 + seed // 2))
    check(tmp_path / "x.log", len(read_plainly(log.data)))
