"""Notes modules in a `DistributedDataParallel` whose `forward` is never called, while an optimizer trains them: then it
averages no gradients, and the ranks drift apart, unless the program averages something by itself.

Whether the ranks hold the same is left to the reader of their logs, which compares digests of a few elements.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import distributed
from torch.nn import Parameter

from stepscope.tracer.inductor.compat import without_modes
from stepscope.tracer.inductor.eager_runs import is_recording_a_device_graph
from stepscope.tracer.inductor.replicas import wrappers
from stepscope.tracer.runtime.program_frames import calling_place
from stepscope.tracer.schema.constants import COMPILED_MODULE
from stepscope.tracer.schema.graphs import UnaveragedGradients

STEPS = 5
"""Number of steps that an optimizer has made when its parameters are looked at, before the next one."""
MOST_LOOKS = 4
"""A look may search all objects of the process."""
_MOST_PARAMETERS, _MOST_ELEMENTS = 16, 16


class AveragingWatch:
    """Writes a record of each `DistributedDataParallel` that was never called, and whose parameters an optimizer
    trains."""

    def __init__(
        self, write: Callable[[UnaveragedGradients], None], failed: Callable[[str, BaseException], None]
    ) -> None:
        self._write, self._failed = write, failed
        self._steps: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._collectives: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        """Number of collectives that the process had called before the first step of each optimizer."""
        self._told: WeakSet[Any] = WeakSet()
        self._looks = 0
        self._is_done = False

    def begins(self, optimizer: Any) -> None:
        """Look at the wrappers of its parameters if an optimizer has made some steps. Raises nothing."""
        if self._is_done or not distributed.is_available() or not distributed.is_initialized():
            return
        try:
            steps = self._steps[optimizer] = self._steps.get(optimizer, -1) + 1
            if steps == 0 and (called := _collectives()) is not None:
                self._collectives[optimizer] = called
            elif steps == STEPS and distributed.get_world_size() > 1 and not is_recording_a_device_graph():
                with without_modes():
                    self._look(optimizer)
        except Exception as error:
            self._is_done = True
            self._failed("gradients that are not averaged", error)

    def _look(self, optimizer: Any) -> None:
        trained = [one for group in optimizer.param_groups for one in group["params"] if _is_trained(one)]
        self._looks += 1
        self._is_done = self._looks == MOST_LOOKS
        before, now = self._collectives.get(optimizer), _collectives()
        collectives = now - before if now is not None and before is not None else None
        for wrapper, own in self._unused(trained):
            self._told.add(wrapper)
            ranks = distributed.get_process_group_ranks(wrapper.process_group)
            name, module = type(optimizer).__name__, type(getattr(wrapper.module, COMPILED_MODULE, wrapper.module))
            self._write(
                UnaveragedGradients(name, STEPS, module.__name__, ranks, _digest(own), collectives, *calling_place())
            )

    def _unused(self, trained: list[Any]) -> list[tuple[Any, list[Any]]]:
        """Return the wrappers that are not in use and not told, with the parameters that are theirs, in the order of
        these, which is the same on all ranks."""
        position = {id(one): n for n, one in enumerate(trained)}
        found = [
            (wrapper, own)
            for wrapper in (wrappers({*position}) if trained else ())
            if wrapper not in self._told and not _is_in_use(wrapper) and (own := _own(wrapper, trained))
        ]
        return sorted(found, key=lambda one: position[id(one[1][0])])


def _is_trained(one: Any) -> bool:
    is_plain = type(one) is Parameter and one.layout is torch.strided and one.is_contiguous()
    return is_plain and one.requires_grad and one.grad is not None and one.numel() > 0


def _own(wrapper: Any, trained: Sequence[Any]) -> list[Any]:
    """Return the trained parameters whose gradients a wrapper is to average."""
    ignored = wrapper.parameters_to_ignore
    own = {id(one) for name, one in wrapper.module.named_parameters() if name not in ignored}
    return [one for one in trained if id(one) in own]


def _is_in_use(wrapper: Any) -> bool:
    """Return whether its `forward` has run, also in `no_sync` or without grad mode, or there is nothing that it could
    average in a backward pass."""
    if distributed.get_world_size(wrapper.process_group) == 1:
        return True
    if getattr(wrapper, "_use_python_reducer", False) or getattr(wrapper, "_delay_all_reduce_all_params", False):
        return True
    return getattr(wrapper, "_lazy_init_ran", True) or not wrapper.require_forward_param_sync


def _collectives() -> int | None:
    """Return how many collectives the process has called in all of its groups; None if a backend does not count."""
    try:
        groups: list[Any] = [*distributed.distributed_c10d._world.pg_map]
        return sum(int(group._get_sequence_number_for_group()) for group in groups)
    except (RuntimeError, AttributeError):
        return None


def _digest(parameters: Sequence[Any]) -> str:
    """Return a digest of elements of the parameters; of many, of some that are spread over all."""
    chosen = parameters[:: -(-len(parameters) // _MOST_PARAMETERS)]
    samples = [one.detach().view(-1)[:: -(-one.numel() // _MOST_ELEMENTS)].cpu().tolist() for one in chosen]
    return hashlib.sha256(repr(samples).encode()).hexdigest()[:16]
