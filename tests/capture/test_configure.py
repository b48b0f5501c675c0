"""Whatever is asked for in whatever order, while it runs: each call is in the log once, and the log fits together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stepscope
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime.values.save import TensorSaver
from stepscope.tracer.schema.launches import Launches
from stepscope.tracer.schema.memory import Lifetimes
from stepscope.viewer.overview.queries.damage import problem_counts
from stepscope.viewer.store.open import open_trace
from tests.tracer.logs import read

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow]  # torch warns of itself while it compiles


def plain(x: torch.Tensor) -> torch.Tensor:
    return (x @ x).relu() @ x


def branching(x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.cond(x.sum() > 0, lambda v: (v @ v).sin(), lambda v: v - 1, (x,))
    return found @ x


class Programs:
    """Compiled functions, each of which runs so many outermost calls."""

    def __init__(self) -> None:
        torch._dynamo.reset()
        self.x = torch.rand(8, 8)
        self.weight = torch.rand(8, 8, requires_grad=True)
        self.plain, self.branching = torch.compile(plain), torch.compile(branching)
        self.training = torch.compile(lambda x, w: torch.nn.functional.gelu(x @ w).sum())
        self.kept: list[torch.Tensor] = []

    def run(self, what: str) -> int:
        if what == "train":
            torch.autograd.backward(self.training(self.x, self.weight))
            return 2
        with torch.no_grad():
            found = (self.plain if what == "plain" else self.branching)(self.x)
        self.kept = [*self.kept[-3:], found]  # storages that die in other calls than those that made them
        self.x = found / found.norm() + 0.1 if what == "branch" else self.x
        return 1


@pytest.fixture(scope="module")
def programs() -> Programs:
    found = Programs()
    for what in ("plain", "branch", "train"):
        found.run(what)
    return found


class Session:
    """A folder of logs, and what ought to be in them."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self.folder, self.programs = folder, programs
        self.recorder: Recorder | None = None
        self.level = "launches"
        self.expected: int | None = 0

    def start(self) -> None:
        if self.recorder is None:
            self.recorder = stepscope.trace(self.folder, level=self.level).start()

    def stop(self) -> None:
        if self.recorder is not None:
            self.recorder.stop()
            self.recorder = None

    def again(self) -> None:
        """The same recorder, attached a second time."""
        if self.recorder is not None:
            self.recorder.stop()
            self.recorder.start()

    def configure(self, **changes: Any) -> None:
        if stepscope.configure(**changes):
            self.level = changes.get("level", self.level)

    def flush(self) -> None:
        if self.recorder is not None:
            self.recorder.flush()

    def run(self, what: str) -> None:
        calls = self.programs.run(what)
        if self.recorder is not None and self.level != "off" and self.expected is not None:
            self.expected += calls

    def in_threads(self, meanwhile: Callable[[], None] = lambda: None) -> int:
        """The outermost calls that two threads have run."""
        found: list[int] = []
        ways = ("branch", 6), ("plain", 12)
        threads = [threading.Thread(target=self._run_often, args=(*way, found)) for way in ways]
        for thread in threads:
            thread.start()
        meanwhile()
        for thread in threads:
            thread.join()
        return sum(found)

    def _run_often(self, what: str, times: int, found: list[int]) -> None:
        found += [self.programs.run(what) for _ in range(times)]

    def threads(self) -> None:
        calls = self.in_threads()
        if self.recorder is not None and self.level != "off" and self.expected is not None:
            self.expected += calls

    def check(self) -> None:
        """Each call once, and no damage. Where `expected` is not known, calls at the edges may be there or not."""
        paths = sorted(self.folder.glob("*.log"))
        calls: list[tuple[str, int]] = []
        outermost = 0
        for path in paths:
            for batch in read(path)[Launches.KIND]:
                calls += [(path.name, number) for number in batch["calls"]["call"]]
                outermost += sum(parent is None for parent in batch["calls"]["parent"])
        assert len(set(calls)) == len(calls)
        assert self.expected is None or outermost == self.expected
        assert not list(self.folder.glob("*.ring"))
        if paths:
            trace = open_trace(self.folder, index_dir=self.folder / "index")
            assert problem_counts(trace) == {}
            trace.close()


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "level": st.sampled_from(["off", "launches", "values", "save", "off"]),
        "kernels": st.sampled_from(["", "extern_kernels.*", "nothing"]),
        "args": st.sampled_from(["", "buf*"]),
        "steps": st.sampled_from([None, "2:6", "0:"]),
        "every": st.integers(1, 3),
        "verify_before": st.booleans(),
        "lifetimes": st.sampled_from(["off", "log"]),
        "lifetimes_every": st.sampled_from([None, 1, 3]),
    },
)
WHAT = st.sampled_from(["plain", "branch", "train"])
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), WHAT),
        st.tuples(st.just("run"), WHAT),
        st.tuples(st.just("configure"), CHANGES),
        st.tuples(st.sampled_from(["start", "stop", "again", "flush", "step", "threads"]), st.none()),
    ),
    min_size=10,
    max_size=30,
)


def act(session: Session, name: str, argument: Any) -> None:
    if name == "run":
        session.run(argument)
    elif name == "configure":
        session.configure(**argument)
    elif name == "step":
        stepscope.step()
    else:
        getattr(session, name)()


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(actions=ACTIONS)
def test_any_order_of_settings(
    actions: list[tuple[str, Any]], tmp_path_factory: pytest.TempPathFactory, programs: Programs
) -> None:
    session = Session(tmp_path_factory.mktemp("any"), programs)
    session.start()
    try:
        for name, argument in actions:
            act(session, name, argument)
    finally:
        session.stop()
    session.check()


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(CHANGES, min_size=1, max_size=6), stops=st.booleans())
def test_settings_that_change_while_threads_run(
    changes: list[dict[str, Any]], stops: bool, tmp_path_factory: pytest.TempPathFactory, programs: Programs
) -> None:
    session = Session(tmp_path_factory.mktemp("threads"), programs)
    session.start()

    def meanwhile() -> None:
        for change in changes:
            session.configure(**change)
            if stops:
                session.again()

    calls = session.in_threads(meanwhile)
    is_sure = not stops and not any(change.get("level") == "off" for change in changes)
    session.expected = calls if is_sure else None
    session.stop()
    session.check()


def test_a_flush_while_storages_are_not_followed_loses_no_call(tmp_path: Path, programs: Programs) -> None:
    with stepscope.trace(tmp_path) as recorder:
        for mode in ("log", "off", "log"):
            stepscope.configure(lifetimes=mode)
            recorder.flush()
            programs.run("plain")
            recorder.flush()
    assert recorder.path is not None
    assert sum(len(batch["call"]) for batch in read(recorder.path)[Lifetimes.KIND]) == 2


def test_what_is_told_of_a_call_is_decided_when_it_begins(tmp_path: Path) -> None:
    """Settings that change in the midst of a call, in an operation that compiled code runs."""
    levels: list[str] = []

    @torch.library.custom_op("stepscope_tests::change_level", mutates_args=())
    def change_level(x: torch.Tensor) -> torch.Tensor:
        if levels:
            stepscope.configure(level=levels.pop(0))
        return x.clone()

    change_level.register_fake(lambda x: torch.empty_like(x))
    torch._dynamo.reset()
    compiled, x = torch.compile(lambda x: change_level(x @ x) @ x), torch.rand(8, 8)
    kept = [compiled(x)]
    with stepscope.trace(tmp_path, level="values") as recorder:
        for level in ("off", "values", "launches", "off", "values"):
            levels[:] = [level]
            kept.append(compiled(kept[-1]))
    assert recorder.path is not None
    launches = read(recorder.path)[Launches.KIND]
    assert sum(len(batch["calls"]["call"]) for batch in launches) == 3  # the second and the last began at level off
    assert all(count == 3 for batch in launches for count in batch["calls"]["launches"])
    trace = open_trace(tmp_path, index_dir=tmp_path / "index")
    assert problem_counts(trace) == {}
    trace.close()


@pytest.mark.parametrize("begins_again", [False, True])
def test_a_recording_that_ends_in_the_midst_of_a_call_that_saves(
    tmp_path: Path, begins_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is saved before a launch that was not seen to begin, and after the end, is no damage in a log."""
    ends: list[Recorder] = []
    torch._dynamo.reset()
    compiled, x = torch.compile(lambda x: (x @ x).relu() @ x), torch.rand(8, 8)
    compiled(x)
    with stepscope.trace(tmp_path, level="save", verify_before=True) as recorder:
        compiled(x)
        save = TensorSaver.save

        def end_meanwhile(saver: TensorSaver, *args: Any, **kwargs: Any) -> Any:
            found = save(saver, *args, **kwargs)
            if ends and kwargs["moment"] == "before" and kwargs["launch"] == 2 and kwargs["argument"] != "buf1":
                ends.pop().stop()
                if begins_again:
                    recorder.start()
            return found

        monkeypatch.setattr(TensorSaver, "save", end_meanwhile)
        ends.append(recorder)
        compiled(x)
    assert not ends
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) == 1 + begins_again
    for log in logs:
        trace = open_trace(log, index_dir=tmp_path / "index")
        assert problem_counts(trace) == {}
        trace.close()
