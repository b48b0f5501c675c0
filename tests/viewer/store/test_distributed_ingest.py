"""`stepscope ingest`: what workers make of logs, and what becomes of it when they die."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import fsspec
import orjson
import pytest

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.overview.summary import summary
from stepscope.viewer.store.distributed_ingest.pools import LocalPool
from stepscope.viewer.store.distributed_ingest.run import MOST_TRIES, Outcome, Work, plan, run_tasks
from stepscope.viewer.store.distributed_ingest.task import ingest_log
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.store.parquet.layout import read_store
from stepscope.viewer.store.trace import Trace
from tests.logs.store_logs import tables, without_ids, write_logs
from tests.logs.synthetic import recorded
from tests.viewer.store import task_work
from tests.viewer.store.task_work import Quiet, ThreadPool
from tests.waiting import wait_for

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir()
    monkeypatch.setenv(task_work.MARKS, str(folder))
    return folder


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    write_logs(folder)
    return folder


def run(folder: Path | str, store: Path | str, work: Work = ingest_log, workers: int = 0) -> tuple[Outcome, Quiet]:
    """In threads, or with so many processes."""
    watcher = Quiet()
    pool = LocalPool(workers) if workers else ThreadPool()
    return run_tasks(plan(str(folder), str(store)), pool, watcher, work), watcher


def same_as_index(folder: Path, store: Path | str, tmp_path: Path) -> None:
    with open_trace(folder, index_dir=tmp_path / "index") as index, open_trace(store) as opened:
        assert not opened.notices
        assert without_ids(summary(opened)) == without_ids(summary(index))


def test_a_store_says_what_the_index_of_the_same_logs_says(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    outcome, watcher = run(logs, store, workers=2)
    paths = sorted(logs.iterdir())
    assert (outcome.logs, outcome.kept, outcome.failed, outcome.retries) == (len(paths), 0, [], 0)
    assert (watcher.logs, watcher.log_bytes) == (len(paths), sum(path.stat().st_size for path in paths))
    assert sum(done.log_bytes for done in watcher.done_units) == watcher.log_bytes
    same_as_index(logs, store, tmp_path)


def test_every_table_holds_the_rows_that_the_log_gives_alone(logs: Path, tmp_path: Path) -> None:
    run(logs, tmp_path / "store")
    child = next(path for path in logs.iterdir() if b'"pid"' not in path.read_bytes() and path.name[16] == "g")
    child.unlink()  # its strings are in another log
    run(logs, tmp_path / "store")
    with open_trace(tmp_path / "store") as store:
        numbered = {Path(source.path): number for number, source in enumerate(store.logs)}
        for path in sorted(logs.iterdir()):
            with open_trace(path, index_dir=tmp_path / "alone") as alone:
                expected, found = tables(alone, 0), tables(store, numbered[path])
            assert {name: len(rows) for name, rows in found.items()} == {n: len(rows) for n, rows in expected.items()}
            assert found == expected


def test_a_childs_strings_come_from_the_log_beside_it(logs: Path, tmp_path: Path) -> None:
    run(logs, tmp_path / "store")
    with open_trace(tmp_path / "store") as trace:
        stacks = trace.cursor().execute("SELECT stack FROM compiles WHERE contains(stack, '\"line\":3')").fetchall()
    assert [orjson.loads(stack)[0]["file"] for (stack,) in stacks] == ["/src/model.py"]


def test_a_second_start_leaves_alone_what_is_done(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run(logs, store)
    before = stamps(store)
    outcome, _ = run(logs, store)
    assert (outcome.kept, outcome.done) == (8, [])
    assert stamps(store) == before


def test_what_changed_is_read_again_under_its_number(logs: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run(logs, store)
    numbers = {unit.log.address: unit.number for unit in read_store(str(store)).manifests}
    changed, damaged = sorted(logs.iterdir())[2:4]
    recorded(pid=3, rank=1, steps=9).write(changed)
    new = recorded(pid=77, rank=7).write(logs / "stepscope_trace_a_between.log")
    victim = next(unit for unit in read_store(str(store)).manifests if unit.log.address == str(damaged))
    table = store / "units" / f"{victim.number:06d}" / victim.folder / "records.parquet"
    table.write_bytes(table.read_bytes()[:-10])
    outcome, _ = run(logs, store)
    assert outcome.kept == 6
    found = {unit.log.address: unit.number for unit in read_store(str(store)).manifests}
    assert (found[str(changed)], len(found)) == (numbers[str(changed)], 9)
    assert {str(new), *map(str, logs.iterdir())} == set(found)
    assert sorted(found.values()) == list(range(9))
    with open_trace(store) as trace:
        assert trace.cursor().execute(
            "SELECT count(*) FROM steps WHERE log = ?", [numbers[str(changed)]]
        ).fetchone() == (9,)
    assert len(list((store / "units" / f"{numbers[str(changed)]:06d}").iterdir())) == 2


@pytest.mark.parametrize("work", [task_work.dies_once_at_1, task_work.raises_once_at_1])
def test_a_failure_costs_its_unit_a_retry(work: Work, logs: Path, marks: Path, tmp_path: Path) -> None:
    outcome, watcher = run(logs, tmp_path / "store", work, workers=2)
    assert (len(outcome.done), outcome.failed) == (8, [])
    # What the other worker did when its pool broke is begun anew too.
    assert outcome.retries in (1, 2)
    assert [number for number, _ in watcher.retries].count(1) == 1
    same_as_index(logs, tmp_path / "store", tmp_path)


def test_a_unit_that_kills_its_workers_is_given_up_and_no_other(logs: Path, marks: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    outcome, _ = run(logs, store, task_work.always_dies_at_1, workers=2)
    [(address, reason)] = outcome.failed
    assert (Path(address), reason) == (sorted(logs.iterdir())[1], f"its worker died (tried {MOST_TRIES} times)")
    assert len((marks / "deaths").read_text()) == MOST_TRIES
    assert len(outcome.done) == 7
    with open_trace(store) as trace:
        assert len(trace.notices) == 1
        assert address in trace.notices[0]
    outcome, _ = run(logs, store)
    assert (outcome.kept, len(outcome.done), outcome.retries) == (7, 1, MOST_TRIES)
    same_as_index(logs, store, tmp_path)


def test_a_run_that_is_killed_goes_on_where_it_stopped(logs: Path, marks: Path, tmp_path: Path) -> None:
    store = tmp_path / "store"
    code = (
        "import sys\n"
        "from tests.viewer.store import task_work\n"
        "from tests.viewer.store.test_distributed_ingest import run\n"
        "if __name__ == '__main__':\n"
        "    run(sys.argv[1], sys.argv[2], task_work.stops_at_2, workers=2)\n"
    )
    script = tmp_path / "killed.py"
    script.write_text(code)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "build" / "import")])}
    whole = subprocess.Popen([sys.executable, str(script), str(logs), str(store)], cwd=ROOT, env=env)
    worker = int(wait_for(task_work.stopped_worker))
    wait_for(lambda: len(list(store.glob("units/*/manifest.json"))) == 7)
    whole.kill()
    whole.wait()
    wait_for(lambda: not alive(worker))
    before = stamps(store)
    outcome, _ = run(logs, store)
    assert (outcome.kept, len(outcome.done), outcome.retries) == (7, 1, 1)
    assert before.items() <= stamps(store).items() | {p: t for p, t in before.items() if "000002" in p}.items()
    same_as_index(logs, store, tmp_path)


def test_a_log_that_cannot_be_read_is_a_problem_until_it_can(logs: Path, tmp_path: Path) -> None:
    store, log = tmp_path / "store", sorted(logs.iterdir())[1]
    kept = shutil.copy2(log, tmp_path / "kept")
    outcome, _ = run(logs, store, task_work.loses_log_1)
    assert not outcome.failed
    with open_trace(store) as trace:
        assert problem_counts(trace)["not_read"] == 1
        assert trace.logs[1].size == 0
    shutil.copy2(kept, log)
    outcome, _ = run(logs, store)
    assert (outcome.kept, len(outcome.done)) == (7, 1)
    same_as_index(logs, store, tmp_path)


def test_a_log_of_a_newer_format_keeps_no_other_from_being_read(logs: Path, tmp_path: Path) -> None:
    newer = recorded(pid=8, format_version=99).write(logs / "stepscope_trace_z.log")
    outcome, watcher = run(logs, tmp_path / "store")
    [(address, reason)] = outcome.failed
    assert address == str(newer)
    assert reason.startswith("this log has format version 99")
    assert (len(outcome.done), watcher.retries) == (8, [])
    with open_trace(tmp_path / "store") as trace:
        titles = [finding.title for finding in all_findings(trace) if finding.kind == "unread_log"]
        assert f"stepscope_trace_z.log was not read: {reason}" in titles
    again, _ = run(logs, tmp_path / "store")
    assert (again.kept, again.failed) == (8, [(address, reason)])
    recorded(pid=8).write(newer)
    assert len(run(logs, tmp_path / "store")[0].done) == 1
    same_as_index(logs, tmp_path / "store", tmp_path)


def test_a_store_in_object_storage(logs: Path, tmp_path: Path) -> None:
    memory = fsspec.filesystem("memory")
    memory.put(f"{logs}/", "/bucket/logs", recursive=True)
    try:
        outcome, _ = run("memory://bucket/logs", "memory://bucket/store")
        assert (len(outcome.done), outcome.failed) == (8, [])
        with open_trace(logs, index_dir=tmp_path) as index, open_trace("memory://bucket/store") as trace:
            assert without_ids(summary(trace)) == without_ids(summary(index))
            assert every_payload(trace) == every_payload(index)
            [(path,)] = trace.cursor().execute("SELECT path FROM logs WHERE log = 0").fetchall()
            assert path.startswith("memory://")
            assert path.endswith("/bucket/logs/stepscope_trace_a_rank_1_x.log.gz")
        assert run("memory://bucket/logs", "memory://bucket/store")[0].kept == 8
    finally:
        memory.rm("/bucket", recursive=True)


def test_addresses_of_local_files_are_paths(logs: Path, tmp_path: Path) -> None:
    run(f"file://{logs}", f"file://{tmp_path}/store")
    same_as_index(logs, tmp_path / "store", tmp_path)
    assert run(logs, tmp_path / "store")[0].kept == 8


@pytest.mark.parametrize(
    ("folder", "store", "sentence"),
    [
        ("nowhere", "store", "There is no file or folder"),
        ("empty", "store", "contains no log"),
        ("logs", "logs", "is not a STORE and contains other files"),
        ("empty/text.log", "store", "is not a log"),
        ("logs", "nosuch://store", "cannot be opened"),
    ],
)
def test_what_cannot_be_ingested_is_said(folder: str, store: str, sentence: str, logs: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    if folder != "empty":
        (tmp_path / "empty" / "text.log").write_text("no log\n")
    with pytest.raises(StepscopeError, match=sentence):
        plan(str(tmp_path / folder), store if "://" in store else str(tmp_path / store))


def every_payload(trace: Trace) -> list[bytes]:
    records = trace.cursor().execute("SELECT record FROM records ORDER BY record").fetchall()
    return [trace.header(record) + trace.payload(record) for (record,) in records]


def stamps(store: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in store.rglob("*") if "units" in path.parts and path.is_file()}


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
