"""Compiles a program with collectives on a fake process group.

    python -m tests.tracer.inductor.recompute_program FOLDER WAY...

Words of a way: `torch` sets torch's own flag, `ours` our switch, `unrecorded` no recorder; `reorder` and `sink` name
a pass to plant a fault in; `no_budget` takes both passes their share. Each way is compiled for itself; a line of
JSON says in which order its nodes are, what was printed, and where the log is.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._inductor.comms as comms
import torch._inductor.config as inductor_config
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.codecache import PyCodeCache
from torch._inductor.scheduler import Scheduler
from torch.testing._internal.distributed.fake_pg import FakeStore

import stepscope

GROUP: Any = None
FAULT_BYTES = 64
PASSES = ["reorder_communication_preserving_peak_memory", "sink_waits_iterative"]
UPDATES = {
    "reorder": "_update_memory_tracking_after_swap_reorder",
    "sink": "_update_memory_tracking_after_swap_sink_waits",
}


def program(a: torch.Tensor, b: torch.Tensor) -> Any:
    x = a @ b
    z = (x.relu() @ b).sin() @ b
    reduced = collectives.all_reduce(x, "sum", GROUP)
    w = (z @ b).cos()
    gathered = collectives.all_gather_tensor(w, 0, GROUP)
    q = (w @ b).tanh()
    return reduced + q, gathered.sum(), (q @ b).sigmoid()


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The pass carries bytes too many for each candidate that it moves."""
    original = getattr(comms, UPDATES[name])

    def update(candidate: Any, *args: Any, **kwargs: Any) -> None:
        original(candidate, *args, **kwargs)
        carried = next(value for value in args if isinstance(value, dict) and isinstance(value.get(candidate), tuple))
        alloc, free = carried[candidate]
        carried[candidate] = (alloc + FAULT_BYTES, free)

    with patch.object(comms, UPDATES[name], update):
        yield


def kernel_of_nothing(self: Any, argtypes: Any, source: str) -> Any:
    """What kernels compute decides nothing here, and to compile their C++ takes most of the time."""
    return lambda *arguments: None


@contextmanager
def orders(seen: list[list[str]]) -> Iterator[None]:
    original = Scheduler.codegen

    def codegen(self: Any) -> None:
        seen.append([node.get_name() for node in self.nodes])
        original(self)

    with patch.object(Scheduler, "codegen", codegen):
        yield


def compile_way(folder: Path, words: list[str]) -> dict[str, Any]:
    config_comms: Any = importlib.import_module("torch._inductor.config_comms")
    torch._dynamo.reset()
    PyCodeCache.cache_clear()
    seen: list[list[str]] = []
    printed, recorder = StringIO(), None
    settings: dict[str, Any] = {"reorder_iterative_debug_memory_recompute": "torch" in words}
    if "no_budget" in words:
        settings |= {"reorder_iterative_peak_memory_budget": 0.0, "sink_iterative_peak_memory_budget": 0.0}
    with ExitStack() as stack:
        stack.enter_context(config_comms.patch(settings))
        key = config_comms.save_config_portable(ignore_private_configs=False)
        for name in UPDATES:
            if name in words:
                stack.enter_context(planted(name))
        stack.enter_context(orders(seen))
        stack.enter_context(patch.object(AsyncCompile, "cpp_pybinding", kernel_of_nothing))
        if "unrecorded" not in words:
            recorder = stack.enter_context(stepscope.trace(folder, check_recompute="ours" in words, provenance=False))
        stack.enter_context(redirect_stdout(printed))
        with suppress(UnboundLocalError):  # of the generated code: its all-reduce is broken on the CPU
            torch.compile(program, fullgraph=True)(torch.ones(64, 64), torch.ones(64, 64))
        same_key = key == config_comms.save_config_portable(ignore_private_configs=False)
    log = str(recorder.path) if recorder is not None else None
    return {"order": seen[0], "same_key": same_key, "printed": printed.getvalue(), "log": log}


def main() -> None:
    global GROUP
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    GROUP = dist.group.WORLD
    settings: dict[str, Any] = {
        "force_disable_caches": True,
        "reorder_for_compute_comm_overlap": True,
        "reorder_for_compute_comm_overlap_passes": PASSES,
        "reorder_for_locality": False,
    }
    with inductor_config.patch(settings):
        for way in sys.argv[2:]:
            print(json.dumps(compile_way(Path(sys.argv[1]), way.split())), flush=True)  # noqa: T201


main()
