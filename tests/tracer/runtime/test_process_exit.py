"""What stands in for the functions by which a program leaves does for the program what they do."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stepscope.tracer.runtime.process_exit import ProcessExit


class Planted(ValueError):
    pass


def raise_in_child(_: int, path: str, end: Exception | int) -> None:
    """Raise the exception, or leave with the exit code: tblib, which dask imports, sends a SystemExit without it."""

    def stop(reason: str) -> None:
        found = leaving.exception
        Path(path).write_text(f"{reason}: {found and (found.type, found.text, found.frames[-1].function)}")

    leaving = ProcessExit(lambda reason: True, stop, lambda: None, lambda: None)
    leaving.attach()
    if isinstance(end, Exception):
        raise end
    if end:
        sys.exit(end)


def raise_by_multiprocessing(how: str, path: str, end: Exception | int) -> int | None:
    child = multiprocessing.get_context(how).Process(target=raise_in_child, args=(0, path, end))  # type: ignore[attr-defined]
    child.start()
    child.join()
    code: int | None = child.exitcode
    return code


def raise_by_torch(how: str, path: str, end: Exception | int) -> int | None:
    torch = pytest.importorskip("torch.multiprocessing")
    context = torch.start_processes(raise_in_child, args=(path, end), join=False, start_method=how)
    context.processes[0].join()
    code: int | None = context.processes[0].exitcode
    return code


@pytest.fixture(autouse=True)
def ended() -> Iterator[list[str]]:
    """Why the log was ended, each time."""
    reasons: list[str] = []

    def end(reason: str) -> bool:
        reasons.append(reason)
        return True

    leaving = ProcessExit(end, lambda reason: None, lambda: None, lambda: reasons.append("stays"))
    leaving.attach()
    yield reasons
    leaving.detach()


@pytest.mark.parametrize("function", [lambda: os._exit, lambda: os.execv, lambda: signal.signal])
def test_a_function_can_be_sent_to_another_process(function: Callable[[], Callable[..., Any]]) -> None:
    assert pickle.loads(pickle.dumps(function())) is function()


@pytest.mark.parametrize("has_names", [False, True])
def test_what_is_about_to_be_another_program_ends_its_log(ended: list[str], tmp_path: Path, has_names: bool) -> None:
    program = tmp_path / "nothing"
    program.write_bytes(b"\x00")
    program.chmod(0o755)
    with pytest.raises(OSError, match="format"):
        os.execve(path=program, argv=["x"], env={}) if has_names else os.execve(program, ["x"], {})
    assert ended == ["exec", "stays"]


def test_what_cannot_become_another_program_ends_nothing(ended: list[str], tmp_path: Path) -> None:
    """A folder may be searched, which is not to be run; a descriptor may be of a file that is not to be run."""
    (text := tmp_path / "text").write_text("")
    text.chmod(0o644)
    for program in (tmp_path, tmp_path / "nothing", text):
        with pytest.raises(OSError, match=r"denied|No such"):
            os.execv(program, ["x"])
    with text.open() as file, pytest.raises(OSError, match="denied"):
        os.execve(file.fileno(), ["x"], {})
    assert ended == []


def test_a_descriptor_of_a_program_ends_the_log(ended: list[str], tmp_path: Path) -> None:
    (program := tmp_path / "nothing").write_bytes(b"\x00")
    program.chmod(0o755)
    with program.open("rb") as file, pytest.raises(OSError, match="format"):
        os.execve(file.fileno(), ["x"], {})
    assert ended == ["exec", "stays"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["spawn", "fork"])
@pytest.mark.parametrize("start", [raise_by_multiprocessing, raise_by_torch])
def test_the_exception_that_ends_a_child_is_known(start: Callable[..., int | None], how: str, tmp_path: Path) -> None:
    path = tmp_path / "told"
    assert start(how, str(path), Planted("bad batch")) == 1
    kind = f"{__name__}.Planted"
    assert path.read_text() == f"exit: {(kind, 'bad batch', 'raise_in_child')}"


@pytest.mark.parametrize("code", [0, 3])
def test_a_child_that_ends_well_or_by_its_own_exit_has_none(code: int, tmp_path: Path) -> None:
    path = tmp_path / "told"
    ended_with = raise_by_multiprocessing("spawn", str(path), code)
    assert (path.read_text(), ended_with) == ("exit: None", code)


def test_the_exception_that_the_parent_handles_is_none_of_the_child(tmp_path: Path) -> None:
    path = tmp_path / "told"
    leaving = ProcessExit(lambda reason: True, lambda reason: note(leaving, path), lambda: None, lambda: None)
    leaving.attach()
    try:
        raise Planted("handled")
    except Planted:
        child = multiprocessing.get_context("fork").Process(target=int)
        child.start()
    child.join()
    leaving.detach()
    assert path.read_text() == "None"


def note(leaving: ProcessExit, path: Path) -> None:
    path.write_text(str(leaving.exception))
