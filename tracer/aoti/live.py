"""Writes a log of what a command prints while it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path

from stepscope.tracer.aoti.capture import Capture
from stepscope.tracer.aoti.printed_log import PrintedLog, run_record
from stepscope.tracer.aoti.printing_code import PrintingCodes
from stepscope.tracer.aoti.program_output import ProgramOutput
from stepscope.tracer.aoti.saved_files import SavedFiles
from stepscope.tracer.config import TraceConfig
from stepscope.tracer.log.writer import LogWriter
from stepscope.tracer.runtime.values.save import tensors_folder
from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.graphs import CppCode

LEVELS = {"launches": "3", "values": "2", "save": "1"}
"""Level of PyTorch's debug printer for each level of `--aoti`."""
AS_COMPILED = "as compiled"
"""Level that records the output of packages that were compiled to print, and changes nothing else."""
NOTHING_PRINTED = (
    "no printed launch was seen: PyTorch builds its printer into a package, or a graph with cpp_wrapper, when it"
    " compiles it; compile it under `stepscope run --aoti` as well"
)
NOT_REACHED = (
    "no printed launch was seen, although this run compiled code that prints its launches: the code was not called, or"
    " each call ended before its first launch"
)
_PRINTER = "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER"
_FILTER = "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT"
_WILD = set("*?[")
_DEATHS_OF_SHELLS = 128
_PRINTING_CODE = f'"{ARTIFACT_PREFIX}{CppCode.KIND}"'.encode()
_FAILED = b"C++ compile error"
_CALL = re.compile(rb"aoti_torch_(?:print|save)_tensor_handle\(([\w.]{1,80})")
_ERROR = re.compile(rb"error: .{0,300}AtenTensorHandle()")
MOST_BYTES = 64 << 20
"""Maximum number of printed bytes that are not read yet."""


def environment(level: str, kernels: Sequence[str]) -> dict[str, str]:
    """Return the variables that turn the printer on for code that the command compiles; its filter has no wildcards."""
    if level == AS_COMPILED:
        return {}
    found = {_PRINTER: LEVELS[level]}
    if level == "values" and kernels and not any(_WILD & set(glob) for glob in kernels):
        found[_FILTER] = ",".join(kernels)
    return found


def about_printed(launches: int | None, logs: Sequence[Path], *, failed: bool) -> str | None:
    """Return why less was recorded than requested, if known; `logs` are those of the processes that compiled."""
    if launches and not failed:
        return None
    if about := number_for_a_tensor(logs):
        return about
    if launches:
        return None
    return NOT_REACHED if any(_has(log, _PRINTING_CODE) for log in logs) else NOTHING_PRINTED


def number_for_a_tensor(logs: Iterable[Path]) -> str | None:
    """Return why the printer made a compile fail, and what to do, or None if none failed.

    The printer treats every input and argument as a tensor, so that code in which one is a number does not compile.
    """
    for log in logs:
        try:
            found = _failure(log)
        except OSError:
            continue
        if found is not None:
            what = f"{found[1].decode()}, which is a number," if found[1] else "an input that is a number"
            return (
                f"PyTorch's debug printer did not compile: it takes {what} for a tensor. --aoti launches, which prints"
                " names only, does without it; so does a model whose numbers are constants or tensors."
            )
    return None


def _has(log: Path, text: bytes) -> bool:
    try:
        with log.open("rb") as file:
            return any(text in line for line in file)
    except OSError:
        return False


def _failure(log: Path) -> re.Match[bytes] | None:
    """Find the error of the printer within one record of a compile error; lines of its payload begin with a tab."""
    found: re.Match[bytes] | None = None
    is_within = False
    with log.open("rb") as file:
        for line in file:
            is_within = _FAILED in line or (is_within and line.startswith(b"\t"))
            told = (_CALL.search(line) or _ERROR.search(line)) if is_within else None
            if told is not None and (found is None or told[1]):
                found = told
            if found is not None and (found[1] or not is_within):
                return found
    return found


def about_kernels(level: str, kernels: Sequence[str]) -> str | None:
    """Return a sentence about the effect of `--kernels` if it is not obvious, or None."""
    if not kernels:
        return None
    if level == "launches":
        return "--kernels narrows values and saved tensors; --aoti launches prints the name of every kernel."
    if environment(level, kernels).get(_FILTER):
        return None
    return (
        "PyTorch's printer cannot narrow by wildcards, nor what it saves: it prints or saves for every kernel, and what"
        " --kernels matches is recorded."
    )


def about_other_filters(config: TraceConfig) -> str | None:
    """Return a sentence about settings of values that have no effect on printed output, or None."""
    given = {
        "--args": config.args, "--steps": config.steps is not None, "--every": config.every > 1,
        "--max-bytes-per-tensor": config.max_bytes_per_tensor is not None, "--elements": config.elements > 0,
        "--verify-before": config.verify_before,
    }  # fmt: skip
    names = [name for name, is_given in given.items() if is_given]
    if not names:
        return None
    return f"What PyTorch's printer prints or saves is recorded without {', '.join(names)}."


def line_buffered() -> dict[str, str]:
    """Return the variables that make a command write each line at once.

    C programs buffer up to 4 KiB of output to a pipe, and lose it when they crash.
    """
    if os.isatty(1) or shutil.which("stdbuf") is None:
        return {}
    shown = subprocess.run(["stdbuf", "-oL", "env", "-0"], capture_output=True, check=False, text=True).stdout
    pairs = (line.partition("=") for line in shown.split("\0"))
    return {name: value for name, _, value in pairs if name in ("LD_PRELOAD", "_STDBUF_O")}


class LiveCapture:
    """Reads the output of a command, and returns the part that is not from the debug printer.

    Another thread reads the text, so that the command waits only if it is `MOST_BYTES` ahead.
    """

    def __init__(self, config: TraceConfig, level: str, argv: Sequence[str]) -> None:
        self.launches = 0
        self._config, self._level, self._argv = config, level, argv
        self._pieces: deque[tuple[bytes, int] | None] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._capture: Capture | None = None
        self._own = ProgramOutput()
        self._is_read = True
        self._thread = threading.Thread(target=self._read, daemon=True)

    def began(self, pid: int) -> None:
        """Begin the log of the command, which runs as the process `pid`."""
        rank = os.environ.get("RANK", "")
        number = int(rank) if rank.isdecimal() else None
        writer = LogWriter(self._config.directory, number, pid)
        run = run_record(self._argv, pid, self._level if self._level in LEVELS else "", number)
        files = None
        if self._level in ("save", AS_COMPILED):
            files = SavedFiles(tensors_folder(writer.target), self._config.save_quota_bytes)
        log = PrintedLog(run.monotonic_ns, self._config.wants_kernel, codes=PrintingCodes(self._config.directory))
        self._capture = Capture(writer, run, log, files)
        self._thread.start()

    def take(self, data: bytes) -> bytes:
        at_ns = time.perf_counter_ns()
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < MOST_BYTES)
            self._bytes += len(data)
            self._pieces.append((data, at_ns))
            self._changed.notify_all()
        return self._own.feed(data) if self._is_read else self._own.release() + data

    @property
    def is_urgent(self) -> bool:
        return self._own.is_urgent

    def release(self) -> bytes:
        return self._own.release()

    def finish(self, code: int, *, timed_out: bool) -> None:
        """Read the rest, after the command has ended with `code` (-n if signal n ended it)."""
        with self._changed:
            self._pieces.append(None)
            self._changed.notify_all()
        self._thread.join()
        if self._capture is not None:
            self._capture.end(is_clean=0 <= code <= _DEATHS_OF_SHELLS and not timed_out)
            self.launches = self._capture.log.launches

    def _read(self) -> None:
        assert self._capture is not None
        while (piece := self._next()) is not None:
            try:
                if self._is_read:
                    self._capture.feed(*piece)
            except Exception as error:  # the command must not wait forever
                self._is_read = False
                print(f"stepscope: what it prints is not read any more: {error!r}", file=sys.stderr)  # noqa: T201

    def _next(self) -> tuple[bytes, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._pieces)
            piece = self._pieces.popleft()
            self._bytes -= len(piece[0]) if piece is not None else 0
            self._changed.notify_all()
            return piece
