"""Tells when optimizers of `torch.optim` have stepped, and records how long that took: no graph runs in this time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

from stepscope.tracer.inductor.changed_hooks import HooksWatch
from stepscope.tracer.inductor.cleared_gradients import ClearedWatch
from stepscope.tracer.inductor.clearing_calls import ClearingCalls
from stepscope.tracer.inductor.clipping_calls import ClippingCalls
from stepscope.tracer.inductor.compat import hidden
from stepscope.tracer.inductor.eval_calls import EvalCalls
from stepscope.tracer.inductor.kept_gradients import GradientResets
from stepscope.tracer.inductor.learning_rates import RateWatch
from stepscope.tracer.inductor.loaded_states import StatesWatch
from stepscope.tracer.inductor.loss_paths import LossPaths
from stepscope.tracer.inductor.lost_updates import UpdateWatch
from stepscope.tracer.inductor.misplaced_clipping import ClippingWatch
from stepscope.tracer.inductor.missing_gradients import GradientWatch
from stepscope.tracer.inductor.nonfinite_parameters import NonfiniteWatch
from stepscope.tracer.inductor.piled_hooks import PilesWatch
from stepscope.tracer.inductor.reentrant_checkpoints import ReentrantCheckpoints
from stepscope.tracer.inductor.repeated_seeds import SeedWatch
from stepscope.tracer.inductor.scheduler_calls import SchedulerCalls
from stepscope.tracer.inductor.shared_parameters import SharedWatch
from stepscope.tracer.inductor.state_calls import StateCalls, waiting_calls
from stepscope.tracer.inductor.unaveraged_gradients import AveragingWatch
from stepscope.tracer.inductor.untrained_parameters import UntrainedWatch
from stepscope.tracer.inductor.zero_gradients import ZeroGradientsWatch
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.graphs import UnaveragedGradients
from stepscope.tracer.schema.losses import LossPath, SummedLosses
from stepscope.tracer.schema.parameters import LearningRate, NonfiniteParameters, ZeroGradients
from stepscope.tracer.schema.repeats import RepeatedSeed
from stepscope.tracer.schema.states import EvalCall, UncopiedState, UnmatchedKeys
from stepscope.tracer.schema.steps import (
    ChangedHooks,
    ClearedGradients,
    KeptGradients,
    LostUpdates,
    MisplacedClipping,
    MissingGradients,
    OptimizerStep,
    PiledHooks,
    SharedParameters,
    UntrainedParameters,
)

OptimizerRecord = (
    OptimizerStep
    | ChangedHooks
    | ClearedGradients
    | EvalCall
    | KeptGradients
    | LearningRate
    | LossPath
    | LostUpdates
    | MisplacedClipping
    | MissingGradients
    | NonfiniteParameters
    | PiledHooks
    | RepeatedSeed
    | SharedParameters
    | SummedLosses
    | UnaveragedGradients
    | UncopiedState
    | UnmatchedKeys
    | UntrainedParameters
    | ZeroGradients
)
LEAST_NS = 1_000_000
"""Shortest step that is recorded."""


class OptimizerSteps:
    """Calls a function at each end of an optimizer's `step`, and another one with the records of long steps, of
    learning rates, of updates that are lost, of missing gradients, of parameters without an optimizer, of those whose
    memory others share, of hooks that change after the compile or pile up, of clipping that has no effect on a step or
    happens before unscaling, of calls of `eval`, of paths to losses, of gradients that DistributedDataParallel does not
    average, of calls of `load_state_dict` that load or restore nothing, of seeds that are set in each step, of
    gradients that are zero, of parameters that become NaN or infinite and, in the end, of gradients that were kept, or
    cleared before a step used them."""

    def __init__(
        self,
        write: Callable[[OptimizerRecord], None],
        on_end: Callable[[Any], None],
        failed: Callable[[str, BaseException], None],
        recorded_step: Callable[[], int],
    ) -> None:
        self._write, self._on_end, self._failed = write, on_end, failed
        self._began: dict[int, int] = {}
        """Begin (ns) of the step that runs, by thread."""
        self._handles: list[Any] = []
        self._gradients, self._cleared = GradientResets(write, failed), ClearedWatch(write, failed)
        self._schedulers = SchedulerCalls(failed)
        self._rates = RateWatch(write, failed, self._schedulers.last)
        self._checkpoints = ReentrantCheckpoints(failed)
        self._updates, self._missing = (
            UpdateWatch(write, failed),
            GradientWatch(write, failed, self._checkpoints.holding),
        )
        self._untrained, self._shared = UntrainedWatch(write, failed), SharedWatch(write, failed)
        self._hooks, self._averaging = HooksWatch(write, failed), AveragingWatch(write, failed)
        self._clipping, self._piles = ClippingWatch(write, failed), PilesWatch(write, failed)
        self._nonfinite = NonfiniteWatch(write, failed, recorded_step)
        self._zero = ZeroGradientsWatch(write, failed)
        self._clearing = ClearingCalls(self._clears, self._has_cleared)
        self._clips, self._evals = ClippingCalls(self._clipping), EvalCalls(write, failed)
        self._losses, self._seeds = LossPaths(write, failed), SeedWatch(write, failed)
        self._state_calls = StateCalls()

    def attach(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._handles = [
            register_optimizer_step_pre_hook(hidden(self._begin)),
            register_optimizer_step_post_hook(hidden(self._end)),
        ]
        self._state_calls = waiting_calls() or self._state_calls
        self._state_calls.watch.begin(self._write, self._failed)
        for calls in self._calls:
            calls.attach()

    @property
    def _calls(self) -> tuple[Any, ...]:
        own = self._checkpoints, self._clearing, self._clips, self._evals, self._losses
        return *own, self._schedulers, self._seeds, self._state_calls

    @property
    def _states(self) -> StatesWatch:
        return self._state_calls.watch

    def captured(self, module: Any) -> None:
        """Note the parameters that a captured graph takes from modules, and their hooks. Raises nothing."""
        self._untrained.captured(module)
        self._shared.captured(module)
        self._cleared.captured(module)
        self._hooks.captured(module)
        self._states.tell()

    def look(self, frame: object, phase: str | None) -> None:
        """Note that a graph of a frame is called. Raises nothing."""
        self._gradients.look(phase)
        self._cleared.look(frame, phase)
        self._hooks.look(frame, phase)
        self._states.tell()

    def after_fork(self) -> None:
        """Forget the steps of the parent, which tells of them."""
        told = self._gradients, self._cleared, self._missing, self._clipping, self._states, self._nonfinite
        for watch in (*told, self._losses, self._seeds):
            watch.after_fork()

    def detach(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for calls in self._calls:
            calls.detach()
        for watch in (self._gradients, self._cleared, self._missing, self._nonfinite):
            watch.tell()

    def _clears(self, owner: Any) -> None:
        self._cleared.clears(owner)
        self._missing.clears(owner)

    def _has_cleared(self, owner: Any) -> None:
        self._cleared.cleared(owner)
        self._missing.cleared(owner)
        self._clipping.cleared(owner)

    def _begin(self, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self._rates.begins(optimizer)
        self._clipping.begins(optimizer)
        self._piles.begins(optimizer)
        self._seeds.begins(optimizer)
        self._nonfinite.begins(optimizer)
        if not _has_closure(args, kwargs):  # else it calls graphs
            self._zero.begins(optimizer)
            self._missing.begins(optimizer)
            self._averaging.begins(optimizer)
            self._untrained.begins(optimizer)
            self._shared.begins(optimizer)
            self._updates.begins(optimizer)
            self._began[threading.get_native_id()] = perf_counter_ns()

    def _end(self, optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        ended, thread = perf_counter_ns(), threading.get_native_id()
        began = self._began.pop(thread, None)
        if began is not None and ended - began >= LEAST_NS:
            name, is_fused = type(optimizer).__name__, _is_fused(optimizer)
            self._write(OptimizerStep(thread, began, ended - began, name, is_fused, *calling_place()))
        self._gradients.stepped(optimizer)
        self._cleared.stepped(optimizer)
        self._clipping.stepped(optimizer)
        self._updates.stepped(optimizer)
        self._shared.stepped(optimizer)
        self._nonfinite.stepped(optimizer)
        self._states.stepped(optimizer)
        self._on_end(optimizer)


def _is_fused(optimizer: Any) -> bool | None:
    settings = [group["fused"] for group in optimizer.param_groups if "fused" in group]
    return all(settings) if settings else None


def _has_closure(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a function that computes the loss was given; the hook's `args` begin with the optimizer."""
    return any(one is not None for one in args[1:]) or kwargs.get("closure") is not None
