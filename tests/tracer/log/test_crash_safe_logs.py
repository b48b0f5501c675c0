"""The log after a full disk, a removed folder, a lost descriptor, an exec, and signals in the midst of a write: what
was written can be read, and the program goes on each time."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from stepscope.tracer.command.process_end import append, has_ended
from stepscope.tracer.log import writer
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.schema.gaps import Skipped
from stepscope.tracer.schema.process_ends import ProcessEnd
from tests.tracer.hand_made import HandMade, column, recorder_in, rows_of
from tests.tracer.logs import read

STEPS, LAUNCHES = 5, 3
MUCH = Skipped("x" * 100_000, "")


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    made = recorder_in(tmp_path / "logs").start()
    yield made
    made.stop()


def steps(recorder: Recorder, graph: HandMade) -> None:
    for _ in range(STEPS):
        graph()
        recorder.step()


def stopped_with(recorder: Recorder, graph: HandMade, capsys: pytest.CaptureFixture[str]) -> str:
    """The program goes on; what is said of it."""
    for _ in range(3):
        steps(recorder, graph)
        recorder.flush()
        recorder.skipped(MUCH)
    assert not recorder._problems._failures
    recorder.stop()
    said = [line for line in capsys.readouterr().err.splitlines() if "recording has stopped" in line]
    assert len(said) == 1
    return said[0]


def write_to(recorder: Recorder, descriptor: int) -> None:
    """As if the log had been opened there."""
    file = recorder._log.writer._file
    assert file is not None
    os.dup2(descriptor, file.descriptor)
    file._identity = writer._identity(os.fstat(descriptor))


def test_a_full_disk(recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    recorder.flush()
    full = os.open("/dev/full", os.O_WRONLY)
    write_to(recorder, full)
    os.close(full)
    assert "No space left on device" in stopped_with(recorder, graph, capsys)
    rows = rows_of(tmp_path / "logs")
    assert not rows.tables["problems"]
    assert {row["step"] for row in rows.tables["steps"]} >= set(range(STEPS))
    (why,) = [row["why"] for row in rows.tables["not_recorded"] if row["what"] == "the rest of the run"]
    assert "No space left on device" in why
    assert [row["complete"] for row in rows.tables["logs"]] == [True]  # the process came to its end


def test_a_limit_on_the_size_of_files(recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    recorder.flush()
    assert recorder.path is not None
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (recorder.path.stat().st_size + 1000, before[1]))
    try:
        said = stopped_with(recorder, graph, capsys)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "File too large" in said
    rows = rows_of(tmp_path / "logs")
    assert not rows.tables["problems"]  # the record that did not fit was taken away again
    assert {row["step"] for row in rows.tables["steps"]} >= set(range(STEPS))


def test_a_removed_folder(recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    shutil.rmtree(tmp_path / "logs")
    assert "No such file or directory" in stopped_with(recorder, graph, capsys)
    assert not (tmp_path / "logs").exists()


def test_a_file_system_that_has_become_read_only(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    recorder.flush()

    def write(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patch:
        patch.setattr("stepscope.tracer.log.writer.os.write", write)
        for _ in range(2):
            steps(recorder, graph)
            recorder.flush()
    assert "Read-only file system" in capsys.readouterr().err
    recorder.stop()
    assert {row["step"] for row in rows_of(tmp_path / "logs").tables["steps"]} >= set(range(STEPS))


def test_a_descriptor_that_the_program_closes_and_uses_again(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    recorder.flush()
    ours = [recorder._log.writer._file, recorder.ring._file]
    theirs = []
    for number, file in enumerate(ours):
        assert file is not None
        (tmp_path / f"{number}").write_text("theirs")
        opened = os.open(tmp_path / f"{number}", os.O_RDWR | os.O_APPEND)
        os.dup2(opened, file.descriptor)  # closes ours
        os.close(opened)
        theirs.append(file.descriptor)
    assert "Bad file descriptor" in stopped_with(recorder, graph, capsys)
    assert [(tmp_path / f"{number}").read_text() for number in range(2)] == ["theirs", "theirs"]
    for descriptor in theirs:
        os.close(descriptor)  # is still theirs
    assert {row["step"] for row in rows_of(tmp_path / "logs").tables["steps"]} >= set(range(STEPS))


def leave() -> None:
    os._exit(0)


def become_another() -> None:
    os.execv("/bin/true", ["/bin/true"])


def leave_with_an_error() -> None:
    os._exit(3)


def become_another_in_its_environment() -> None:
    os.execlpe("true", "true", os.environ)


ENDS: list[tuple[Callable[[], None], str | None]] = [
    (leave, "_exit"),
    (become_another, "exec"),
    (become_another_in_its_environment, "exec"),
    (leave_with_an_error, None),
]


@pytest.mark.parametrize(("go", "reason"), ENDS)
def test_a_process_that_leaves_without_an_end_of_pythons(
    go: Callable[[], None], reason: str | None, recorder: Recorder, tmp_path: Path
) -> None:
    """Its log is ended before, unless it leaves with an error: then nothing says that it ended well."""
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    pid = os.fork()
    if pid == 0:
        try:
            steps(recorder, graph)
            go()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (3 if reason is None else 0)
    (log,) = (tmp_path / "logs").glob(f"*_{pid}_*.log")
    assert [end["reason"] for end in read(log)["end"]] == ([] if reason is None else [reason])
    assert log.with_name(log.name + ".ring").exists() is (reason is None)
    rows = rows_of(log)
    assert [row["step"] for row in rows.tables["steps"]] == list(range(STEPS))
    assert len(column(rows, "launches", "launch")) == STEPS * LAUNCHES
    assert not rows.tables["problems"]
    steps(recorder, graph)
    recorder.stop()
    (own,) = set((tmp_path / "logs").glob("*.log")) - {log}
    assert len(column(rows_of(own), "launches", "launch")) == 2 * STEPS * LAUNCHES


class Ring(Exception):
    """What a handler of the program raises."""


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], None]], None]]:
    def set_handler(do: Callable[[], None]) -> None:
        def handle(number: int, frame: FrameType | None) -> None:
            do()

        signal.signal(signal.SIGUSR1, handle)

    before = signal.getsignal(signal.SIGUSR1)
    yield set_handler
    signal.signal(signal.SIGUSR1, before)


def interrupt_writes(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """So many writes are cut in half, with a signal in between."""
    write, left = os.write, iter(range(times))

    def half(descriptor: int, data: memoryview) -> int:
        if next(left, None) is None or len(data) < 2:
            return write(descriptor, data)
        written = write(descriptor, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGUSR1)
        return written

    monkeypatch.setattr("stepscope.tracer.log.writer.os.write", half)


def test_a_handler_that_records_in_the_midst_of_a_write(
    recorder: Recorder, tmp_path: Path, on_signal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = HandMade(recorder, LAUNCHES)
    graph()

    def record() -> None:
        graph()
        recorder.step()
        recorder.flush()
        recorder.skipped(Skipped("in the handler", ""))

    on_signal(record)
    interrupt_writes(monkeypatch, 2)
    recorder.skipped(Skipped("before", ""))
    recorder.flush()
    recorder.stop()
    assert recorder.path is not None
    found = read(recorder.path)  # every payload is the one its header names
    assert {"before", "in the handler"} <= {record["what"] for record in found["skipped"]}
    assert not rows_of(tmp_path / "logs").tables["problems"]
    assert len(column(rows_of(tmp_path / "logs"), "launches", "launch")) == 3 * LAUNCHES


@pytest.mark.parametrize("kind", [Ring, TimeoutError, KeyboardInterrupt])
def test_what_a_handler_raises_in_the_midst_of_a_write_reaches_the_program(
    kind: type[BaseException],
    recorder: Recorder,
    tmp_path: Path,
    on_signal: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = HandMade(recorder, LAUNCHES)
    graph()

    def fail() -> None:
        raise kind

    on_signal(fail)
    with monkeypatch.context() as patch:
        interrupt_writes(patch, 1)
        with pytest.raises(kind):
            recorder.flush()
    graph()
    recorder.stop()
    assert not recorder._problems._failures
    rows = rows_of(tmp_path / "logs")
    assert not rows.tables["problems"]
    assert [row["complete"] for row in rows.tables["logs"]] == [True]


def test_what_a_handler_raises_in_the_midst_of_a_hook_reaches_the_program(
    recorder: Recorder, tmp_path: Path, on_signal: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = HandMade(recorder, LAUNCHES)
    graph()

    def fail() -> None:
        raise Ring

    def interrupted(call: object) -> None:
        os.kill(os.getpid(), signal.SIGUSR1)

    on_signal(fail)
    with monkeypatch.context() as patch:
        patch.setattr(recorder._outbox.pending, "add_call", interrupted)
        with pytest.raises(Ring):
            graph()
    graph()
    assert not recorder._problems._failures
    recorder.stop()
    assert not rows_of(tmp_path / "logs").tables["problems"]


def test_what_a_handler_raises_in_the_midst_of_a_launch_leaves_whole_rows(
    recorder: Recorder, tmp_path: Path, on_signal: Callable[..., None]
) -> None:
    def fail() -> None:
        raise Ring

    on_signal(fail)
    graph = HandMade(recorder, LAUNCHES, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    with pytest.raises(Ring):
        graph()
    recorder.stop()
    rows = rows_of(tmp_path / "logs")
    assert column(rows, "launches", "step") == [0]
    assert not rows.tables["problems"]


def test_a_relative_folder_is_that_of_the_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    recorder = recorder_in(Path("logs")).start()
    graph = HandMade(recorder, LAUNCHES)
    monkeypatch.chdir(tmp_path / "elsewhere")
    steps(recorder, graph)
    recorder.flush()
    monkeypatch.chdir("/")
    recorder.stop()
    assert [path.suffix for path in (tmp_path / "logs").iterdir()] == [".log"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_functions_of_the_system_are_back_afterwards(recorder: Recorder) -> None:
    assert os._exit.__module__ != "posix" or hasattr(os._exit, "__wrapped__")
    recorder.stop()
    assert not any(hasattr(function, "__wrapped__") for function in (os._exit, os.execv, os.execve))


def test_a_child_that_recorded_nothing_leaves_no_log(recorder: Recorder, tmp_path: Path) -> None:
    steps(recorder, HandMade(recorder, LAUNCHES))
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert list((tmp_path / "logs").glob(f"*_{pid}_*")) == []


def test_an_exec_that_fails_ends_nothing(recorder: Recorder, tmp_path: Path) -> None:
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    recorder.flush()
    for program, words in ((tmp_path / "no-such-program", "No such file"), (tmp_path, "Permission denied")):
        with pytest.raises(OSError, match=words):
            os.execv(program, ["x"])
    assert "end" not in read(next((tmp_path / "logs").glob("*.log")))
    steps(recorder, graph)
    recorder.stop()
    rows = rows_of(tmp_path / "logs")
    assert len(column(rows, "launches", "launch")) == 2 * STEPS * LAUNCHES
    assert not rows.tables["problems"]


def test_an_exec_that_fails_although_its_file_can_be_run(recorder: Recorder, tmp_path: Path) -> None:
    """The end that was written before it is none: should the process die now, its log is not complete."""
    graph = HandMade(recorder, LAUNCHES)
    steps(recorder, graph)
    (program := tmp_path / "no-program").write_bytes(b"\x00")
    program.chmod(0o755)
    with pytest.raises(OSError, match="format"):
        os.execv(program, ["x"])
    (log,) = (tmp_path / "logs").glob("*.log")
    assert [end["reason"] for end in read(log)["end"]] == ["exec"]
    assert (is_complete(log), has_ended(log)) == (False, False)
    steps(recorder, graph)
    recorder.flush()
    assert (is_complete(log), has_ended(log)) == (False, False)
    recorder.stop()
    assert (is_complete(log), has_ended(log)) == (True, True)
    rows = rows_of(log)
    assert len(column(rows, "launches", "launch")) == 2 * STEPS * LAUNCHES
    assert not rows.tables["problems"]
    append(ProcessEnd(os.getpid(), 0, None, False, 1), [log])
    assert is_complete(log)


def test_a_child_whose_exec_fails_leaves_no_log(recorder: Recorder, tmp_path: Path) -> None:
    steps(recorder, HandMade(recorder, LAUNCHES))
    (program := tmp_path / "no-program").write_bytes(b"\x00")
    program.chmod(0o755)
    pid = os.spawnv(os.P_NOWAIT, program, ["x"])
    os.waitpid(pid, 0)
    assert list((tmp_path / "logs").glob(f"*_{pid}_*")) == []


def is_complete(log: Path) -> bool:
    (row,) = rows_of(log).tables["logs"]
    return bool(row["complete"])
