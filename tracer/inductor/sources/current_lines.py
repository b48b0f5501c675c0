"""Maps the source lines that a cached graph was compiled from to the lines of this run.

A stack of lines is found in this run in one of these ways:

1. By the nodes of Dynamo's graph that had the stack at the compile: if Dynamo's graph has the same shape in this run,
   its nodes correspond, whatever their lines are now.
2. By the text of the stacks in the graph that Dynamo has captured for this compile. Stacks with the same text are
   matched in order, if there are as many as before.
3. If no graph of Dynamo's is known (its part came from a cache too, or the recording began later), by the files of
   this process: the line has the same number, or occurs once elsewhere in its file.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property

from stepscope.tracer.inductor.sources.dynamo_graphs import Captured, CompiledLines, Stack
from stepscope.tracer.schema.process_ends import Frame

Like = Callable[[Stack], Hashable]


class TodaysLines:
    """Finds the stacks of one graph in this run."""

    def __init__(self, captured: Captured | None, compiled: CompiledLines | None, cached: Iterable[Stack]) -> None:
        """Create the lookup; `cached` are the stacks of all kernels of the graph as the cache has them."""
        self._captured, self._cached = captured, set(cached)
        corresponds = captured is not None and compiled is not None and compiled.shape == captured.shape
        is_of_these = compiled is not None and any(map(compiled.nodes, self._cached))  # else from another compile
        self._compiled = compiled if corresponds and is_of_these else None
        self._files: dict[str, dict[str, list[int]] | None] = {}

    def now(self, stack: Stack) -> Stack | None:
        """Return the stack of this run; empty if the node has no known lines now, None if the code is not found."""
        if self._captured is None:
            return self._in_files(stack)
        positions = self._compiled.nodes(stack) if self._compiled else []
        if positions:
            found = {self._captured.stacks[position] for position in positions}
            return found.pop() if len(found) == 1 else self._alike(stack)
        if self._compiled is not None and stack not in self._todays:
            return self._in_files(stack)  # no node of Dynamo's had it: it was added later
        return self._alike(stack)

    def stands(self, frame: Frame) -> bool:
        """Return whether the line is the same in this run."""
        if self._captured is None:
            return self._in_file(frame) == frame
        return frame in self._frames

    @cached_property
    def _todays(self) -> dict[Stack, None]:
        return dict.fromkeys(filter(None, self._captured.stacks if self._captured else ()))

    @cached_property
    def _frames(self) -> set[Frame]:
        return {frame for stack in self._todays for frame in stack}

    def _alike(self, stack: Stack) -> Stack | None:
        if self._is_as_compiled:
            return stack
        for like, of_cached, of_todays in self._by_text:
            before, now = of_cached[like(stack)], of_todays.get(like(stack))
            if now:
                is_sure = len(now) == len(before) and all(_text(stack)) and _is_one_order(before, now)
                return now[before.index(stack)] if is_sure else None
        return None

    @cached_property
    def _by_text(self) -> list[tuple[Like, dict[Hashable, list[Stack]], dict[Hashable, list[Stack]]]]:
        return [
            (like, _groups(self._cached, like), _groups(self._todays, like)) for like in (_functions_and_text, _text)
        ]

    @cached_property
    def _is_as_compiled(self) -> bool:
        """Whether the number and text of every line are unchanged."""
        return all(stack in self._todays for stack in self._cached)

    def _in_files(self, stack: Stack) -> Stack | None:
        found = [self._in_file(frame) for frame in stack]
        known = tuple(frame for frame in found if frame is not None)
        return known if len(known) == len(found) else None

    def _in_file(self, frame: Frame) -> Frame | None:
        if frame.file not in self._files:
            self._files[frame.file] = self._numbers(frame.file)
        numbers = self._files[frame.file]
        if numbers is None:
            return None
        if not numbers and not frame.code:
            return frame  # its text was not known when it was compiled either
        found = numbers.get(frame.code, ())
        if frame.line in found:
            return frame
        return replace(frame, line=found[0]) if len(found) == 1 and frame.code else None

    def _numbers(self, file: str) -> dict[str, list[int]] | None:
        """Return the line numbers by text; None if the file belongs to another program."""
        if os.path.isfile(file) and os.path.abspath(file) not in self._loaded:
            return None
        found: dict[str, list[int]] = {}
        for number, line in enumerate(linecache.getlines(file), 1):
            found.setdefault(line.strip(), []).append(number)
        return found

    @cached_property
    def _loaded(self) -> set[str]:
        """Paths of the files of this process's modules."""
        files = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
        return {os.path.abspath(file) for file in files if isinstance(file, str)}


def _groups(stacks: Iterable[Stack], like: Like) -> dict[Hashable, list[Stack]]:
    """Return the stacks by their value of `like`, in the order of their lines."""
    found: dict[Hashable, list[Stack]] = {}
    for stack in sorted(stacks, key=_lines):
        found.setdefault(like(stack), []).append(stack)
    return found


def _is_one_order(before: list[Stack], now: list[Stack]) -> bool:
    """Return whether both lists are sorted alike; lines of several files are sorted by file names, which must agree."""
    files, files_now = set(map(_files, before)), set(map(_files, now))
    return files == files_now or len(files) == len(files_now) == 1


def _text(stack: Stack) -> tuple[str, ...]:
    return tuple(frame.code for frame in stack)


def _functions_and_text(stack: Stack) -> tuple[tuple[str, str], ...]:
    return tuple((frame.function, frame.code) for frame in stack)


def _files(stack: Stack) -> tuple[str, ...]:
    return tuple(frame.file for frame in stack)


def _lines(stack: Stack) -> tuple[tuple[str, int], ...]:
    return tuple((frame.file, frame.line) for frame in stack)
