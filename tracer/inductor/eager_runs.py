"""Runs a graph in eager mode without the program noticing: its modes, hooks and random numbers are kept away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _python_dispatch

States = list[torch.Tensor]


@contextmanager
def apart(states: States | None = None) -> Iterator[None]:
    """Hide operations from the program's modes and hooks; begin with the generators in `states`, and restore them.

    Without `states` nothing may draw, and the generators, which all threads share, are left alone.
    """
    before = generator_states() if states is not None else None
    if states is not None:
        set_generators(states)
    try:
        with (
            torch._C.DisableTorchFunction(),
            _python_dispatch._disable_current_modes(),
            torch.autograd.graph.saved_tensors_hooks(_same, _same),
        ):
            yield
    finally:
        if before is not None and not states_equal(before, generator_states()):
            set_generators(before)


def generator_states() -> States:
    """Return the states of the default generators of the CPU and of each CUDA device that the program uses."""
    devices = torch.cuda.get_rng_state_all() if _uses_cuda() else []
    return [torch.get_rng_state(), *devices]


def set_generators(states: States) -> None:
    torch.set_rng_state(states[0])
    for device, state in enumerate(states[1:]):
        torch.cuda.set_rng_state(state, device)


def states_equal(one: States, other: States) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def is_recording_a_device_graph() -> bool:
    return _uses_cuda() and torch.cuda.is_current_stream_capturing()


def waits_are_reported() -> bool:
    """Return whether the program has PyTorch warn of operations that wait for a CUDA device, or refuse them."""
    return _uses_cuda() and torch.cuda.get_sync_debug_mode() != 0


def may_wait() -> bool:
    """Return whether waiting for a device breaks no CUDA graph, and the program has not asked to hear of it."""
    return not (is_recording_a_device_graph() or waits_are_reported())


def traces_backward() -> bool:
    """Return whether compiled autograd will trace the backward, hooks included."""
    from torch._dynamo import compiled_autograd

    return bool(compiled_autograd.compiled_autograd_enabled)


def _uses_cuda() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _same(value: Any) -> Any:
    return value
