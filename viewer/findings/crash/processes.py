"""The recorded processes that ended without an end record."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stepscope.viewer.crash.queries.process_ends import ProcessEndRow
from stepscope.viewer.overview.rows import RunRow

_START_SLACK_S = 5
_WORKER = "multiprocessing"
"""In the command line of a process that `multiprocessing` spawned."""
_OWN_NAME = re.compile(r"stepscope_trace_rank_\d+_\d+_[0-9a-f]+\.log")


def unfinished(runs: Sequence[RunRow], ends: Mapping[int, ProcessEndRow]) -> list[RunRow]:
    """Those without an end record whose processes do not run here: who waited for one knows, else the machine."""
    return [run for run in runs if run.complete is False and (own_end(run, ends) or not is_running(run))]


def recorded_nothing(run: RunRow) -> bool:
    """Who waited for the process wrote its log, with no more than how it ended."""
    return run.level is not None and run.torch is None and run.python is None


def is_printed(run: RunRow) -> bool:
    """Its log was made of what a process printed, which may have a log of its own beside it."""
    return run.level is not None and run.torch is None and run.python is not None


def may_have_left(
    run: RunRow, runs: Sequence[RunRow], ends: Mapping[int, ProcessEndRow], within_a_launch: Collection[int]
) -> bool:
    """It left without an error; of a worker of a process that ended well, between launches, nothing tells from a death
    that its parent has ended it, as pools do."""
    end = own_end(run, ends)
    if end is not None:
        return end.exit_code == 0 and not end.timed_out
    return (
        (run.forked or any(_WORKER in text for text in run.argv))
        and run.log not in within_a_launch
        and any(parent.complete and parent.pid == run.parent_pid for parent in runs)
    )


def own_end(run: RunRow, ends: Mapping[int, ProcessEndRow]) -> ProcessEndRow | None:
    """How the process of a log itself ended, not the command that started it. A tool that the command ran under leaves
    as the program did."""
    end = ends.get(run.log)
    return end if end is not None and (end.pid == run.pid or (end.tool and not run.forked)) else None


def is_running(run: RunRow) -> bool:
    """The process that wrote a log still runs on this machine. A younger process of the same id is another one, and so
    is an older one that does not have the log open: on this machine, say, of a log that a container left."""
    pid, began_unix_ns = run.parent_pid if is_printed(run) else run.pid, run.start_unix_ns
    if not run.pid or pid is None or pid <= 0 or os.name != "posix":  # text that somebody sent is of no process
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        pass
    except (ProcessLookupError, OverflowError):
        return False
    started_s = _started_unix_s(pid)
    if began_unix_ns is not None and started_s is not None and started_s > began_unix_ns / 1e9 + _START_SLACK_S:
        return False
    return _has_open(pid, run.path) is not False


def _has_open(pid: int, log: str) -> bool | None:
    """A process has a log of this name open, or the ring beside it; None: nobody can tell, as of a log that was given
    another name. A process that is gone, and waits for its parent to ask how it ended, has nothing open, and neither
    has one of the system's own."""
    name = _OWN_NAME.match(os.path.basename(log))
    try:
        if not Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        if name is None:
            return None
        return any(os.path.basename(target).startswith(name[0]) for target in _open_files(pid))
    except PermissionError:  # somebody else's
        with suppress(OSError):
            return None if os.stat(log).st_uid == os.stat(f"/proc/{pid}").st_uid else False
    except OSError:
        pass
    return None


def _open_files(pid: int) -> Iterator[str]:
    """Raises OSError where the system does not say."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield os.readlink(link)


def _started_unix_s(pid: int) -> float | None:
    """When a process began; None where the system does not say (only Linux does)."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot_s = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except (OSError, IndexError, ValueError):
        return None
    return int(boot_s[1]) + ticks / os.sysconf("SC_CLK_TCK") if boot_s else None
