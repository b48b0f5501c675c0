"""Finds the recorded processes that ended without an end record."""

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
"""Part of the command line of a process that `multiprocessing` spawned."""
_OWN_NAME = re.compile(r"stepscope_trace_rank_\d+_\d+_[0-9a-f]+\.log")


def unfinished(runs: Sequence[RunRow], ends: Mapping[int, ProcessEndRow]) -> list[RunRow]:
    """Return the runs without an end record whose process has ended, as its parent or else this machine knows."""
    return [run for run in runs if run.complete is False and (own_end(run, ends) or not is_running(run))]


def recorded_nothing(run: RunRow) -> bool:
    """Return whether the parent of the process wrote its log, which only says how the process ended."""
    return run.level is not None and run.torch is None and run.python is None


def is_printed(run: RunRow) -> bool:
    """Return whether the log has the output of a process, which may have a log of its own too."""
    return run.level is not None and run.torch is None and run.python is not None


def may_have_left(
    run: RunRow, runs: Sequence[RunRow], ends: Mapping[int, ProcessEndRow], within_a_launch: Collection[int]
) -> bool:
    """Return whether the process may have ended without an error. For workers, this includes those that ended between
    launches while their parent ended well: pools end their workers."""
    end = own_end(run, ends)
    if end is not None:
        return end.exit_code == 0 and not end.timed_out
    return (
        (run.forked or any(_WORKER in text for text in run.argv))
        and run.log not in within_a_launch
        and any(parent.complete and parent.pid == run.parent_pid for parent in runs)
    )


def own_end(run: RunRow, ends: Mapping[int, ProcessEndRow]) -> ProcessEndRow | None:
    """Return how the process of a log ended, None if only the end of the command that started it is known. A tool
    around the command ends as the program does."""
    end = ends.get(run.log)
    return end if end is not None and (end.pid == run.pid or (end.tool and not run.forked)) else None


def is_running(run: RunRow) -> bool:
    """Return whether the process that wrote a log still runs on this machine. A younger process with the same id is
    another one, and so is one that does not have the log open, such as when a container wrote the log."""
    pid, began_unix_ns = run.parent_pid if is_printed(run) else run.pid, run.start_unix_ns
    if not run.pid or pid is None or pid <= 0 or os.name != "posix":  # the text may come from another machine
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
    """Return whether a process has a log of this name, or the ring beside it, open. None if that is unknown, such as
    for a renamed log. A zombie and a kernel thread have nothing open."""
    name = _OWN_NAME.match(os.path.basename(log))
    try:
        if not Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        if name is None:
            return None
        return any(os.path.basename(target).startswith(name[0]) for target in _open_files(pid))
    except PermissionError:  # it belongs to another user
        with suppress(OSError):
            return None if os.stat(log).st_uid == os.stat(f"/proc/{pid}").st_uid else False
    except OSError:
        pass
    return None


def _open_files(pid: int) -> Iterator[str]:
    """Yield the open files of a process. Raises OSError if the system does not list them."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            yield os.readlink(link)


def _started_unix_s(pid: int) -> float | None:
    """Return the start of a process in unix seconds, or None if the system does not say (only Linux does)."""
    try:
        ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
        boot_s = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(), re.MULTILINE)
    except (OSError, IndexError, ValueError):
        return None
    return int(boot_s[1]) + ticks / os.sysconf("SC_CLK_TCK") if boot_s else None
