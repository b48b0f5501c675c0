"""Whatever fails in the recorder, the recorded program runs to its end with the right result."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.capture.logs import Trace
from tests.capture.scripts import Scripts


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.startswith("stepscope:")]


HOOKS = [
    "stepscope.tracer.recorder.Recorder.finish",
    "stepscope.tracer.recorder.Recorder.enter",
    "stepscope.tracer.recorder.Recorder.tensors",
    "stepscope.tracer.recorder.Recorder.graph",
    "stepscope.tracer.recorder.Recorder.provenance",
    "stepscope.tracer.runtime.launches.described",
    "stepscope.tracer.runtime.outbox.records_of",
    "stepscope.tracer.runtime.launches.plain_values",
    "stepscope.tracer.steps.StepTracker.on_user",
    "stepscope.tracer.inductor.wrapper_hook.analyse",
    "stepscope.tracer.inductor.code_swap.instrumented",
    "stepscope.tracer.inductor.codegen_facts.match",
    "stepscope.tracer.inductor.structured_log.encode",
]


@pytest.fixture(scope="module")
def broken_hooks(scripts: Scripts, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, Path]]:
    """For each of HOOKS, which is made to raise: what the program printed, what was said, and where the log is."""
    folder = tmp_path_factory.mktemp("hooks")
    done = scripts.run(
        folder,
        f"""
        import importlib
        import torch._functorch.config, torch._inductor.config
        torch._functorch.config.enable_autograd_cache = torch._inductor.config.fx_graph_cache = False
        def broken(*args, **kwargs):
            raise RuntimeError("broken on purpose")
        sized = torch.compile(lambda x: (x @ x.T).relu(), dynamic=True)
        for name in {HOOKS!r}:
            for stream in (sys.stdout, sys.stderr):
                print("HOOK", name, file=stream, flush=True)
            owner, _, last = name.rpartition(".")
            try:
                target = importlib.import_module(owner)
            except ImportError:
                module, _, member = owner.rpartition(".")
                target = getattr(importlib.import_module(module), member)
            original = getattr(target, last)
            torch._dynamo.reset()
            setattr(target, last, broken)
            with stepscope.trace(FOLDER + "/" + name):
                for _ in range(3):
                    same(model(VALUE))
                    sized(VALUE[:5])
                    try:
                        stepscope.step()
                    except RuntimeError:
                        print("RAISED")
            setattr(target, last, original)
            same(model(VALUE))
        """,
    )
    assert done.returncode == 0, done.stderr
    out, said_of = (
        dict(part.split("\n", 1) for part in text.split("HOOK ")[1:]) for text in (done.stdout, done.stderr)
    )
    return {name: (out[name], said_of[name], folder / name) for name in HOOKS}


@pytest.mark.slow
@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_is_counted_and_said_once(broken_hooks: dict[str, tuple[str, str, Path]], hook: str) -> None:
    out, err, folder = broken_hooks[hook]
    assert out.split() == ["same"] * 4
    assert "Traceback" not in err
    lines = [line for line in err.splitlines() if line.startswith("stepscope:")]
    assert len(lines) == len(set(lines))
    assert 1 <= len(lines) <= 3, "nothing was said, or one failure was said in many places"  # a flush may come late
    assert any("broken on purpose" in line for line in lines)
    trace = Trace(folder)
    assert trace.of("failure") or trace.of("skipped")


def test_a_wrapper_that_cannot_be_parsed(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        import stepscope.tracer.inductor.wrapper_hook as hook
        analyse = hook.analyse
        hook.analyse = lambda source, *rest: analyse(source + "\\n)", *rest)
        with stepscope.trace(FOLDER):
            same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["same"]), done.stderr
    (line,) = said(done)
    assert "parsed" in line
    trace = Trace(tmp_path)
    (graph,) = trace.of("graph")
    assert "parsed" in graph["not_recorded"]
    assert len(trace.of("skipped")) == 1


@pytest.mark.parametrize("folder", ["/dev/null/logs", "/proc/logs"])
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_folder_that_cannot_be_written(scripts: Scripts, folder: str) -> None:
    done = scripts.run(
        Path(folder),
        """
        with stepscope.trace(FOLDER):
            for _ in range(3):
                same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["same"] * 3), done.stderr
    (line,) = said(done)
    assert folder in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_disk_that_fills_up(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        with stepscope.trace(FOLDER) as recorder:
            same(model(VALUE))
            full, write, log = os.open("/dev/full", os.O_WRONLY), os.write, os.path.realpath(recorder.path)
            os.write = lambda number, data: write(
                full if os.path.realpath(f"/proc/self/fd/{number}") == log else number, data
            )
            for _ in range(3):
                stepscope.step()
                same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["same"] * 4), done.stderr
    (line,) = said(done)
    assert "No space left" in line
    assert Trace(tmp_path).of("graph"), "what was written before stays readable"


def test_a_forked_child_has_a_log_of_its_own(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        with stepscope.trace(FOLDER):
            same(model(VALUE))
            child = os.fork()
            if child == 0:
                same(model(VALUE))
                same(model(VALUE))
                sys.exit(0)
            assert os.waitpid(child, 0)[1] == 0
            same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["same"] * 4), done.stderr
    assert said(done) == []
    logs = sorted(tmp_path.glob("*.log"))
    assert len(logs) == 2
    runs = []
    for log in logs:
        folder = tmp_path / log.stem
        folder.mkdir()
        log.rename(folder / log.name)
        trace = Trace(folder)
        (run,) = trace.of("run")
        assert f"_{run['pid']}_" in log.name
        assert len(trace.of("end")) == 1
        threads = {thread for batch in trace.of("launches") for thread in batch["calls"]["thread"]}
        assert threads == {run["pid"]}, "the main thread's number is its own process's"
        assert sum(len(batch["calls"]["call"]) for batch in trace.of("launches")) == 2
        runs.append((run["pid"], run["parent_pid"]))
    (first, second) = runs
    assert (first[0] == second[1]) != (second[0] == first[1]), "one is the other's child"


def test_a_child_that_is_forked_while_another_thread_compiles_a_part_of_ours(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        import time
        from stepscope.tracer.inductor import stats_toolchain
        from stepscope.tracer.runtime.active import current

        begun, goes_on, build = threading.Event(), threading.Event(), stats_toolchain.build_library

        def slowly(source):
            if "stepscope_ticks" in source:
                begun.set()
                goes_on.wait(120)
            return build(source)

        stats_toolchain.build_library = slowly
        with stepscope.trace(FOLDER):
            thread = threading.Thread(target=lambda: model(VALUE))
            thread.start()
            assert begun.wait(60)
            child = os.fork()
            if child == 0:
                current().flush()
                os._exit(0)
            left = 1000
            while not os.waitpid(child, os.WNOHANG)[0] and left:
                left -= 1
                time.sleep(0.05)
            print("ended" if left else "HANGS")
            if not left:
                os.kill(child, 9)
            goes_on.set()
            thread.join()
            same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["ended", "same"]), done.stderr


@pytest.mark.slow
def test_each_of_two_processes_has_its_log(scripts: Scripts, tmp_path: Path) -> None:
    body = "import torch; torch.compile(lambda value: (value @ value).sin().sum(0))(torch.ones(8, 8))"
    with ThreadPoolExecutor() as pool:
        both = [pool.submit(scripts.run_alone, tmp_path, body, STEPSCOPE_TRACE=str(tmp_path)) for _ in range(2)]
    assert [done.result().returncode for done in both] == [0, 0], [done.result().stderr for done in both]
    trace = Trace(tmp_path)
    assert len(trace.paths) == 2
    assert len({run["pid"] for run in trace.of("run")}) == 2
    assert [end["reason"] for end in trace.of("end")] == ["exit", "exit"]


def test_threads_are_told_apart(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        model(VALUE)
        with stepscope.trace(FOLDER):
            def work():
                sys.stdout.write(f"thread {threading.get_native_id()}\\n")
                gate.wait()
                for _ in range(50):
                    model(VALUE)
            gate = threading.Barrier(4)
            workers = [threading.Thread(target=work) for _ in range(4)]
            for worker in workers: worker.start()
            for worker in workers: worker.join()
        """,
    )
    assert done.returncode == 0, done.stderr
    threads = {int(line.split()[1]) for line in done.stdout.splitlines()}
    calls: Counter[int] = Counter()
    for batch in Trace(tmp_path).of("launches"):
        calls.update(batch["calls"]["thread"])
    assert calls == dict.fromkeys(threads, 50)


def test_an_exception_in_a_kernel_passes_through(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        BROKEN = False
        @torch.library.custom_op("stepscope_tests::may_fail", mutates_args=())
        def may_fail(value: torch.Tensor) -> torch.Tensor:
            if BROKEN:
                raise ValueError("from the kernel")
            return value * 2
        @may_fail.register_fake
        def _(value):
            return torch.empty_like(value)

        @torch.compile
        def program(value):
            return may_fail(value.sin()).cos()

        with stepscope.trace(FOLDER):
            stepscope.step()
            for BROKEN in (False, True, False):
                try:
                    found = program(VALUE)
                    print("ok" if torch.allclose(found, (VALUE.sin() * 2).cos()) else "DIFFERENT")
                except ValueError as error:
                    frames = []
                    trace = error.__traceback__
                    while trace:
                        frames.append(trace.tb_frame.f_code.co_name)
                        line = (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
                        if trace.tb_frame.f_code.co_name == "call":
                            print(open(line[0]).read().splitlines()[line[1] - 1].strip())
                        trace = trace.tb_next
                stepscope.step()
        """,
    )
    assert done.returncode == 0, done.stderr
    ok, line, again = done.stdout.splitlines()
    assert (ok, again) == ("ok", "ok")
    assert "may_fail" in line, "the traceback names the line of the wrapper's file"
    states, last = [], []
    for batch in Trace(tmp_path).of("launches"):
        row = 0
        for state, count in zip(batch["calls"]["state"], batch["calls"]["launches"], strict=True):
            states.append((state, count))
            last.append(batch["end_ns"][row + count - 1])
            row += count
    assert [state for state, _ in states] == ["ok", "raised", "ok"]
    assert states[1][1] < states[0][1] == states[2][1]
    assert [end == -1 for end in last] == [False, True, False]


def test_the_very_same_code_objects_run_after_detach(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        from torch._inductor.codecache import PyCodeCache
        model(VALUE)
        (module,) = [module for module in PyCodeCache.modules if hasattr(module, "call")]
        function = module.Runner.call
        before, names = function.__code__, set(vars(module))
        for _ in range(2):
            recorder = stepscope.trace(FOLDER)
            recorder.start()
            assert function.__code__ is not before
            same(model(VALUE))
            recorder.stop()
            recorder.stop()
            assert function.__code__ is before
            assert set(vars(module)) == names
            same(model(VALUE))
        import torch._inductor.config as config
        print("provenance", config.trace.provenance_tracking_level)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["same"] * 4 + ["provenance 0"]
    trace = Trace(tmp_path)
    assert len(trace.paths) == 2
    assert [len(batch["calls"]["call"]) for batch in trace.of("launches")] == [1, 1]


def test_each_call_of_a_decorated_function_is_recorded(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path,
        """
        recorder = stepscope.trace(FOLDER)
        print(recorder)
        @recorder
        def train():
            same(model(VALUE))
        train()
        train()
        """,
    )
    assert (done.returncode, said(done)) == (0, []), done.stderr
    assert done.stdout.splitlines() == [
        "<stepscope recorder: not recording, level launches, log not begun>", "same", "same",
    ]  # fmt: skip
    trace = Trace(tmp_path)
    assert [len(batch["calls"]["call"]) for batch in trace.of("launches")] == [1, 1]
    assert len(trace.paths) == 2


def test_one_recording_at_a_time(scripts: Scripts, tmp_path: Path) -> None:
    done = scripts.run(
        tmp_path / "first",
        """
        with stepscope.trace(FOLDER):
            with stepscope.trace(FOLDER + "-second"):
                same(model(VALUE))
            same(model(VALUE))
        """,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["same"] * 2), done.stderr
    (line,) = said(done)
    assert (
        line == f"stepscope: nothing is recorded to {tmp_path / 'first-second'}: {tmp_path / 'first'} is being recorded"
    )
    assert not (tmp_path / "first-second").exists()
    assert sum(len(batch["calls"]["call"]) for batch in Trace(tmp_path / "first").of("launches")) == 2


@pytest.mark.slow
def test_a_compiled_optimizer_is_compiled_as_without_recording(scripts: Scripts, tmp_path: Path) -> None:
    """Dynamo traces through the optimizer's hooks: ours must not break its graph, nor be compiled itself."""
    done = scripts.run(
        tmp_path,
        """
        from torch._dynamo.utils import counters
        def train():
            torch._dynamo.reset()
            counters.clear()
            torch.manual_seed(0)
            weights = torch.nn.Linear(8, 8)
            optimizer = torch.optim.Adam(weights.parameters(), foreach=True)
            @torch.compile
            def update():
                optimizer.step()
            for _ in range(2):
                optimizer.zero_grad()
                weights(VALUE).sum().backward()
                update()
            print("graphs", counters["stats"]["unique_graphs"], "breaks", sum(counters["graph_break"].values()))
            return weights.weight.detach().clone()
        before = train()
        with stepscope.trace(FOLDER):
            recorded = train()
        print(torch.equal(before, recorded))
        """,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty_cache"),  # a cold one: a thread compiles C++ meanwhile
    )
    assert done.returncode == 0, done.stderr
    off, on, equal = done.stdout.splitlines()
    assert equal == "True"
    assert on == off
    reasons = [record.payload or b"" for record in Trace(tmp_path).records if "graph_break" in (record.artifact or "")]
    assert [reason for reason in reasons if b"/tracer/" in reason] == []


@pytest.mark.slow
@pytest.mark.parametrize("before", ["", "import torch._inductor.codecache"])
def test_scheduler_nodes_are_known_however_early_recording_starts(
    scripts: Scripts, tmp_path: Path, before: str
) -> None:
    """`torch.compile` loads Inductor's modules bit by bit; the recorder may be attached before, between or after."""
    done = scripts.run_alone(
        tmp_path,
        f"""
        import sys, stepscope, torch
        {before}
        with stepscope.trace(sys.argv[1]):
            torch.compile(lambda value: (value @ value).sin().sum(0))(torch.ones(8, 8))
        """,
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "empty_cache"),
    )
    assert done.returncode == 0, done.stderr
    (graph,) = Trace(tmp_path).of("graph")
    assert [site["snodes"] is None for site in graph["sites"]] == [False] * len(graph["sites"])
