"""Finds a seed that the program sets again in each step, so that each step draws the same random numbers.

All functions of PyTorch that seed default generators, `torch.manual_seed` too, hand a function that seeds those of CUDA
devices to `_lazy_call` of torch/cuda/random.py, whether there is such a device or not. This alone is wrapped: names
that a program has imported before are seen as well, and Dynamo, which leaves all of these functions to Python, finds
them as they are. Whether what was drawn is the same is read from the generators before each step: they have the seed,
and the state that they had before the last step.
"""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter_ns
from types import FrameType, GeneratorType
from typing import Any, Literal, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch.cuda import random as cuda_random

from stepscope.tracer.inductor import compat
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.wrapped_functions import WrappedFunctions
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.repeats import RepeatedSeed

LEAST = 6
"""Number of successive steps in which a seed must be set."""
MOST_TOLD = 8
_FOLDER = os.path.dirname(torch.__file__) + os.sep
_SEEDING = {_FOLDER + "random.py": "torch", os.path.join(_FOLDER, "cuda", "random.py"): "torch.cuda"}
"""Files of the functions that a program calls, with the module in which it finds them."""
_PASSING = {*_SEEDING, _FOLDER + "_compile.py", os.path.join(_FOLDER, "_dynamo", "eval_frame.py")}
"""These files, and those of what Dynamo wraps the functions in."""

Device = Literal["cpu", "cuda"]


class _Seeding(NamedTuple):
    """What a line of the program does again and again."""

    function: str
    seed: int
    file: str
    line: int


class _Call(NamedTuple):
    what: _Seeding
    ns: int


@dataclass
class _Run:
    """Successive steps of an optimizer that began with the same state of a generator."""

    state: bytes
    """Nothing if no other step can follow."""
    calls: list[_Call] = field(default_factory=list)


class SeedWatch:
    """Writes a record of each line of the program that sets the same seed in successive steps of an optimizer."""

    def __init__(self, write: Callable[[RepeatedSeed], None], failed: Callable[[str, BaseException], None]) -> None:
        self._write, self._failed = write, failed
        self._wrapped = WrappedFunctions()
        self._begin()

    def _begin(self) -> None:
        self._last: dict[Device, _Call] = {}
        self._runs: WeakKeyDictionary[Any, dict[Device, _Run]] = WeakKeyDictionary()
        self._due: set[_Seeding] = set()
        """What is told after one step more."""
        self._is_undone: dict[_Seeding, bool] = {}
        """Whether this happens in a block that restores the generators in the end."""
        self._told: set[tuple[_Seeding, Device]] = set()
        self._is_done = False

    def attach(self) -> None:
        if not self._wrapped:
            self._wrapped.wrap(cuda_random, "_lazy_call", self._noting)

    def detach(self) -> None:
        self._wrapped.restore()

    def after_fork(self) -> None:
        """Begin anew in a forked child."""
        self._begin()

    def begins(self, optimizer: Any) -> None:
        """Look at the generators that were seeded, if an optimizer is about to make a step. Raises nothing."""
        if self._is_done or not self._last:
            return
        try:
            runs = self._runs.setdefault(optimizer, {})
            for device, call in [*self._last.items()]:
                self._look(runs, device, call)
        except Exception as error:
            self._fail(error)

    def _look(self, runs: dict[Device, _Run], device: Device, call: _Call) -> None:
        run = runs.get(device)
        if run is not None and run.calls[-1] is call:
            run.state = b""  # the step before was the last one
        elif (call.what, device) not in self._told:
            state = _state(device, call.what.seed)
            if run is None or not state or run.state != state or run.calls[-1].what != call.what:
                run = runs[device] = _Run(state)
            run.calls.append(call)
            self._count(device, run.calls)

    def _count(self, device: Device, calls: list[_Call]) -> None:
        if len(calls) == LEAST:
            self._tell(device, calls)
        elif len(calls) == LEAST - 1:
            self._due.add(calls[0].what)

    def _tell(self, device: Device, calls: list[_Call]) -> None:
        what = calls[0].what
        self._told.add((what, device))
        self._is_done = len(self._told) == MOST_TOLD
        times = [one.ns for one in calls]
        self._write(RepeatedSeed(what.function, str(what.seed), device, times, what.file, what.line))

    def _noting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        watch, note = self, compat.hidden(self._note)

        @functools.wraps(original, updated=())
        def lazy_call(function: Any, *arguments: Any, **named: Any) -> Any:
            if named and watch._wrapped and not watch._is_done:
                note(function, sys._getframe(1))
            return original(function, *arguments, **named)

        wrapper: Callable[..., Any] = compat.left_to_python(lazy_call, original)
        return wrapper

    def _note(self, seeds: Any, frame: FrameType) -> None:
        try:
            name, (file, line) = _called(frame), calling_place()
            cells = dict(zip(seeds.__code__.co_freevars, seeds.__closure__ or (), strict=True))
            if name is None or file is None or line is None or "seed" not in cells:
                return
            what = _Seeding(name, cells["seed"].cell_contents, file, line)
            if what in self._due and what not in self._is_undone:
                self._is_undone[what] = _is_in_a_fork()
            if not self._is_undone.get(what):
                call = _Call(what, perf_counter_ns())
                self._last |= {"cuda": call} if name.startswith("torch.cuda.") else {"cpu": call, "cuda": call}
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._is_done = True
        self._runs.clear()
        self._failed("seeds that are set in each step", error)


def _called(frame: FrameType | None) -> str | None:
    """Return the name of the function that the program has called; None if PyTorch itself has called it."""
    name = None
    while frame is not None and frame.f_code.co_filename in _PASSING:
        module = _SEEDING.get(frame.f_code.co_filename)
        name = f"{module}.{frame.f_code.co_name}" if module is not None else name
        frame = frame.f_back
    return name if frame is not None and not frame.f_code.co_filename.startswith(_FOLDER) else None


def _state(device: Device, seed: int) -> bytes:
    """Return the state of a default generator, or nothing if it cannot be read or does not come from the seed."""
    is_cuda = device == "cuda"
    if is_cuda and (not torch.cuda.is_initialized() or is_recording_a_device_graph()):  # type: ignore[no-untyped-call]
        return b""
    generator = torch.cuda.default_generators[torch.cuda.current_device()] if is_cuda else torch.default_generator
    if generator.initial_seed() != seed % 2**64:  # it was restored, or seeded in another way
        return b""
    with compat.without_modes():
        return generator.get_state().numpy().tobytes()


def _is_in_a_fork() -> bool:
    """Return whether a block of `torch.random.fork_rng` runs in any thread. Looks at all objects of the process."""
    code = torch.random.fork_rng.__wrapped__.__code__  # type: ignore[attr-defined]
    found = (one for one in gc.get_objects() if type(one) is GeneratorType and one.gi_code is code)
    return any(one.gi_frame is not None for one in found)
