"""Lines that came with a graph out of a cache -> the lines of this run that the graph is of.

A stack of lines is the same code in this run where one of these says so:

1. The nodes of Dynamo's graph that it was of when the graph was compiled; those of a graph with the same shape
   correspond, whatever their lines are called now.
2. The text of the stacks in the graph that Dynamo has captured for this compile. Of stacks that read alike each is
   found in its turn, where there are as many as there were.
3. Where Dynamo captured nothing that is known (its part came from a cache too, or the recording began later), the
   files of this process: a line stands where it stood, or somewhere else in its file, once.
"""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Hashable, Iterable
from dataclasses import replace
from functools import cached_property

from stepscope.tracer.inductor.sources.dynamo_graphs import Captured, CompiledLines, Stack
from stepscope.tracer.schema.records import Frame

Like = Callable[[Stack], Hashable]


class TodaysLines:
    """Looks up the stacks of one graph."""

    def __init__(self, captured: Captured | None, compiled: CompiledLines | None, cached: Iterable[Stack]) -> None:
        """`cached`: the stacks of all kernels of the graph, as they came out of the cache."""
        self._captured, self._cached = captured, set(cached)
        corresponds = captured is not None and compiled is not None and compiled.shape == captured.shape
        is_of_these = compiled is not None and any(map(compiled.nodes, self._cached))  # not of another compile
        self._compiled = compiled if corresponds and is_of_these else None
        self._files: dict[str, dict[str, list[int]] | None] = {}

    def now(self, stack: Stack) -> Stack | None:
        """The stack of this run; empty where no line of it is known any more, None where the code is not found."""
        if self._captured is None:
            return self._in_files(stack)
        positions = self._compiled.nodes(stack) if self._compiled else []
        if positions:
            found = {self._captured.stacks[position] for position in positions}
            return found.pop() if len(found) == 1 else self._alike(stack)
        if self._compiled is not None and stack not in self._todays:
            return self._in_files(stack)  # no node of Dynamo's had it: it was made later
        return self._alike(stack)

    def stands(self, frame: Frame) -> bool:
        """The line reads so in this run."""
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
        """Every line reads and stands as it did."""
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
        """Text -> the lines that read so; None for a file of another program."""
        if os.path.isfile(file) and os.path.abspath(file) not in self._loaded:
            return None
        found: dict[str, list[int]] = {}
        for number, line in enumerate(linecache.getlines(file), 1):
            found.setdefault(line.strip(), []).append(number)
        return found

    @cached_property
    def _loaded(self) -> set[str]:
        """Files of the modules of this process."""
        files = [getattr(module, "__dict__", {}).get("__file__") for module in list(sys.modules.values())]
        return {os.path.abspath(file) for file in files if isinstance(file, str)}


def _groups(stacks: Iterable[Stack], like: Like) -> dict[Hashable, list[Stack]]:
    """Stacks that are alike, in the order of their lines."""
    found: dict[Hashable, list[Stack]] = {}
    for stack in sorted(stacks, key=_lines):
        found.setdefault(like(stack), []).append(stack)
    return found


def _is_one_order(before: list[Stack], now: list[Stack]) -> bool:
    """Lines of several files follow one another by the names of the files: these must be the same."""
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
