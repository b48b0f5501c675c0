"""Follows a trace that still grows: reads it again in the background and replaces the old reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from stepscope.tracer.schema.log_format import HEADER, decode_payload, decode_payload_crlf, payload_digest
from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.ingest.lenient_json import loads
from stepscope.viewer.ingest.sources import STDIN, NoSuchLog, Source, TracePath, find_logs, trace_names
from stepscope.viewer.store.kept import Kept
from stepscope.viewer.store.open import open_logs
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.web.answers import Answer
from stepscope.viewer.web.frame import PageFrame, frame_of

LEAST_SECONDS = 1.0
"""Minimum time between two checks of the logs."""
SHARE = 0.1
"""Maximum share of the time that is spent reading; a log that takes a minute is read every ten minutes."""
QUIET_SECONDS = 5.0
"""Time without growth after which an incomplete last record of a log is read as it is."""
_TAIL_BYTES = 1 << 20
KEPT_ANSWER_BYTES = 32 << 20
"""Maximum size of the answers that are kept in memory."""


class Reading:
    """One reading of a trace, and the page frame for it."""

    def __init__(self, trace: Trace, following: bool) -> None:
        self.trace = trace
        self.users = 0
        self.answers: Kept[Answer] = Kept(KEPT_ANSWER_BYTES, _size_of)
        """Answers to requests, by `key_of`; the trace does not change while it is open."""
        self._following = following
        self._frame: PageFrame | None = None

    @property
    def has_frame(self) -> bool:
        return self._frame is not None

    def key_of(self, address: Hashable) -> tuple[Hashable, ...]:
        """Return the key of the answer for an address. Pages show the trace's notices, which may become more."""
        return address, *self.trace.notices

    @property
    def frame(self) -> PageFrame:
        if self._frame is None:
            self._frame = frame_of(self.trace, self._following)
        return self._frame


class Current:
    """The current reading, which may be replaced at any time; users of the old one can finish with it."""

    def __init__(self, trace: Trace, following: bool = False) -> None:
        self._following = following
        self._lock = threading.Lock()
        self._reading = Reading(trace, following)

    @contextmanager
    def use(self) -> Iterator[Reading]:
        with self._lock:
            reading = self._reading
            reading.users += 1
        try:
            yield reading
        finally:
            with self._lock:
                reading.users -= 1
                unused = reading is not self._reading and not reading.users
            if unused:
                reading.trace.close()

    def replace(self, trace: Trace) -> None:
        """Show `trace` from now on; the previous one is closed after its last user."""
        with self._lock:
            old, self._reading = self._reading, Reading(trace, self._following)
            unused = not old.users
        if unused:
            old.trace.close()

    def close(self) -> None:
        """Close the current reading, which must have no users."""
        self._reading.trace.close()


class Follower:
    """A background thread that checks the logs of `path` and reads them again when they have grown."""

    def __init__(self, path: TracePath, current: Current, say: Callable[[str], None] = print) -> None:
        self._path, self._current, self._say = path, current, say
        self._shown = _sizes(current._reading.trace.logs)
        self._seen: list[tuple[str, int, int]] = []
        self._seen_at = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)
        self.pause = LEAST_SECONDS
        """Seconds until the next check."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._ended.wait(self.pause):
            started = time.monotonic()
            try:
                self.look()
            except (StepscopeError, OSError) as error:
                self._say(f"stepscope: the pages are not updated: {error}")
            pause = max(LEAST_SECONDS, (time.monotonic() - started) * (1 / SHARE - 1))
            if pause > max(10.0, 2 * self.pause):
                self._say(f"stepscope: reading takes long, so the pages are updated every {pause:,.0f} s")
            self.pause = pause

    def look(self) -> bool:
        """Read the logs again if they have grown and return whether; raise StepscopeError if they cannot be read."""
        sources = find_logs(self._path)
        if _sizes(sources) != self._seen:
            self._seen, self._seen_at = _sizes(sources), time.monotonic()
        if time.monotonic() - self._seen_at < QUIET_SECONDS:
            sources = whole_records(sources)
        if not sources or _sizes(sources) == self._shown:
            return False
        _in_another_process(self._path, sources)
        self._current.replace(open_logs(self._path, sources))
        self._shown = _sizes(sources)
        return True


def _in_another_process(path: TracePath, sources: list[Source]) -> None:
    """Build the index in another process, so that no page waits; errors appear again when the index is opened."""
    import multiprocessing

    reader = multiprocessing.get_context("spawn").Process(target=_read, args=(path, sources))
    reader.start()
    reader.join()


def _read(path: TracePath, sources: list[Source]) -> None:
    with suppress(StepscopeError):
        open_logs(path, sources).close()


def open_growing(path: TracePath, say: Callable[[str], None] = print) -> Trace:
    """Open logs that may still grow, up to their last complete record; wait until there is a record.

    Raise StepscopeError if there is no such folder or file, and for standard input.
    """
    if STDIN in trace_names(path):
        raise StepscopeError("Standard input cannot be followed: give a log, or a folder of logs.")
    waits = False
    while True:
        try:
            sources = whole_records(find_logs(path))
        except NoSuchLog:
            raise
        except StepscopeError:
            sources = []
        if sources:
            return open_logs(path, sources)
        if not waits:
            say("stepscope: there is no record yet; waiting for the first one (Ctrl-C ends it)")
        waits = True
        time.sleep(LEAST_SECONDS)


def whole_records(sources: Sequence[Source]) -> list[Source]:
    """Cut logs after their last complete record, so that one being written is not damage; leave out empty logs."""
    cut = [replace(source, size=whole_size(source)) for source in sources]
    return [source for source in cut if source.size or source.problems]


def whole_size(source: Source) -> int:
    """Return the size of a log without its last record if that is incomplete."""
    start, data = _last_record(source)
    header, _, tabbed = data.partition(b"\n")
    match = HEADER.match(header)
    if not data.endswith(b"\n") or match is None:
        return start
    try:
        value = loads(match[11])
    except ValueError:
        return start
    digest = value.get("has_payload") if isinstance(value, dict) else None
    read = (decode_payload, decode_payload_crlf)
    is_whole = digest is None or any(payload_digest(decode(tabbed)) == digest for decode in read)
    return source.size if is_whole else start


def _last_record(source: Source) -> tuple[int, bytes]:
    """Return (offset, bytes) of the log from the last line that may be the header of a record."""
    with source.data_path.open("rb") as file:
        start, data = source.size, b""
        while start > 0:
            size = min(max(_TAIL_BYTES, len(data)), start)
            start -= size
            file.seek(start)
            data = file.read(size) + data
            found = data.rfind(b"\nV")
            if found >= 0:
                return start + found + 1, data[found + 1 :]
    return 0, data


def _size_of(key: Hashable, answer: Answer) -> int:
    """Return the bytes of an answer and its key in memory, with 1,000 for its headers."""
    return 1_000 + len(str(key)) + (len(answer.body) if isinstance(answer.body, bytes) else 0)


def _sizes(sources: Sequence[Source]) -> list[tuple[str, int, int]]:
    return [(str(source.path), source.size, hash(source.ring)) for source in sources]
