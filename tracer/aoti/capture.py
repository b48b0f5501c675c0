"""Converts printed text, live or from a file, to a log of its launches."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stepscope.tracer.aoti.printed_launches import LaunchReader, ModelRun
from stepscope.tracer.aoti.printed_log import PrintedLog, run_record
from stepscope.tracer.aoti.printer_output import Printed, PrintedFile, PrintedTensor, PrinterReader
from stepscope.tracer.aoti.printing_code import PrintingCodes
from stepscope.tracer.aoti.profiler_times import Durations, durations
from stepscope.tracer.aoti.saved_files import SavedFiles
from stepscope.tracer.log.writer import LogWriter
from stepscope.tracer.schema.process_ends import End
from stepscope.tracer.schema.records import Run

_PIECE_BYTES = 1 << 20


class Capture:
    """Reads text in pieces and writes a log of the launches in it, or no log if there is no launch.

    `files` copies saved tensors; it is None if they are not on this machine.
    """

    def __init__(self, writer: LogWriter, run: Run, log: PrintedLog, files: SavedFiles | None = None) -> None:
        self.writer, self.log = writer, log
        self._run, self._files = run, files
        self._reader, self._launches = PrinterReader(), LaunchReader()
        self._began = False
        self._at_ns: int | None = None

    def feed(self, data: bytes, at_ns: int | None = None) -> None:
        """Read a piece of text; `at_ns` is when it was read, or None if the program was not running."""
        self._at_ns = at_ns
        self._take(self._reader.feed(data, at_ns))

    def end(self, *, is_clean: bool = True) -> None:
        """End the log, with an end record unless its last launch did not return or the process died (`is_clean`)."""
        self._take(self._reader.end(self._at_ns))
        left = list(self._launches.end())
        for run in left:
            self._write(run, is_cut_off=True)
        if not self._began:
            return
        for record in self.log.end():
            self.writer.write(record)
        if is_clean and all(launch.returned for run in left for launch in run.launches[-1:]):
            self.writer.write(End("exit", time.perf_counter_ns()))
        self.writer.close()

    def _take(self, events: Iterable[Printed]) -> None:
        for event in events:
            if isinstance(event, PrintedFile) and self._files is not None and self.log.wants(event.kernel):
                event = replace(event, kept=self._files.keep(event.path))
            for run in self._launches.take(event):
                self._write(run)

    def _write(self, run: ModelRun, *, is_cut_off: bool = False) -> None:
        records = list(self.log.records(run, is_cut_off=is_cut_off))
        if records and not self._began:
            self._began = True
            self.writer.write(replace(self._run, level=self._run.level or _level(run)))
        for record in records:
            self.writer.write(record)


def _level(run: ModelRun) -> str:
    """Return the level of recording that the first printed launches show."""
    printed = [one for launch in run.launches for one in launch.before]
    if any(isinstance(one, PrintedFile) for one in printed):
        return "save"
    return "values" if any(isinstance(one, PrintedTensor) for one in printed) else "launches"


def import_file(text: str, folder: Path, profile: Path | None = None) -> tuple[Path, int, int]:
    """Return the log of a text file, and the numbers of its model runs and launches.

    `text` is a path, or ``-`` for standard input; `profile` is a trace of PyTorch's profiler. Raises OSError and
    ValueError with one sentence.
    """
    times = durations(profile) if profile is not None else None
    try:
        with open(0, "rb", closefd=False) if text == "-" else Path(text).open("rb") as file:
            capture = import_text(iter(lambda: file.read(_PIECE_BYTES), b""), folder, Path(text).name, times)
    except OSError as error:
        raise OSError(f"{error.filename or text}: {error.strerror}") from None
    if capture.writer.path is None:
        raise ValueError(
            f"{text}: no launch in it that PyTorch's C++ debug printer printed; it prints for models compiled with "
            "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER=2, by AOTInductor or with cpp_wrapper"
        )
    return capture.writer.path, capture.log.calls, capture.log.launches


def import_text(pieces: Iterable[bytes], folder: Path, name: str, times: Durations | None = None) -> Capture:
    """Write the log of printed text; the writer's `path` is None if the text has no launch. Raises OSError."""
    run = run_record(["stepscope", "import-aoti", name], 0, "")
    log = PrintedLog(run.monotonic_ns, lambda kernel: True, times, PrintingCodes(folder))
    capture = Capture(LogWriter(folder, None), run, log)
    for piece in pieces:
        capture.feed(piece)
    capture.end()
    if capture.writer.failure is not None:
        raise capture.writer.failure
    return capture
