"""A wrapper as Inductor writes it, made by hand: its launches do what the test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from stepscope.tracer.inductor import code_swap
from stepscope.tracer.recorder import Recorder
from stepscope.tracer.runtime.launches import GraphHooks
from stepscope.tracer.runtime.ticks import tick_type
from stepscope.tracer.schema.graphs import Graph
from stepscope.tracer.wrapper.source import analyse
from stepscope.viewer.ingest.logs import read_logs
from stepscope.viewer.ingest.rows import IndexRows
from stepscope.viewer.ingest.sources import find_logs

LAUNCH = "    extern_kernels.mm(arg0_1, arg0_1, out=arg0_1)\n"
HEAD = "# AOT ID: ['0_inference']\n\n\ndef call(args):\n    arg0_1, = args\n"
LOOP = "    while more():\n    "


class HandMade:
    """A graph with hooks of `recorder`. `on_launch` is called by each of its launches."""

    def __init__(
        self,
        recorder: Recorder,
        launches: int,
        on_launch: Callable[[], None] = lambda: None,
        *,
        turns: int | None = None,
        is_capturing: Callable[[], bool] | None = None,
    ) -> None:
        """`turns`: the launches are one, in a loop that runs so often. `is_capturing`: it runs on a CUDA device."""
        source = HEAD + (LAUNCH * launches if turns is None else LOOP + LAUNCH) + "    return ()\n"
        if is_capturing is not None:
            source += "# torch.cuda\n"
        wrapper = analyse(source)
        left = iter(range(turns or 0))
        self.module = ModuleType("hand_made")
        self.module.extern_kernels = SimpleNamespace(mm=lambda *a, **k: on_launch())  # type: ignore[attr-defined]
        self.module.more = lambda: next(left, None) is not None  # type: ignore[attr-defined]
        exec(compile(source, "hand_made.py", "exec", dont_inherit=True), vars(self.module))
        self.graph = Graph(0, "key", "0/0", "0_inference", "inference", False, False, ["call"], wrapper.sites, [])
        self.hooks = GraphHooks(
            recorder, self.graph, "frame", code_swap.shapes(wrapper), is_capturing, tick_type=tick_type()
        )
        code_swap.swap(self.module, wrapper, "hand_made.py", self.hooks)
        recorder.graph(self.graph, None)

    def __call__(self) -> None:
        self.module.call([None])


def recorder_in(folder: Path) -> Recorder:
    from torch._inductor.codecache import PyCodeCache

    from stepscope.tracer import trace

    PyCodeCache.modules.clear()  # of earlier tests: the hand-made graph is to be the only one
    return trace(folder, lifetimes="off", provenance=False)


def rows_of(folder: Path) -> IndexRows:
    """The rows of the one log of a folder."""
    return read_logs(find_logs(folder))


def ring_rows(rows: IndexRows) -> list[tuple[str, int, int, bool]]:
    """(role, step, position, returned)."""
    return [(row["role"], row["step"], row["position"], row["returned"]) for row in rows.tables["ring_launches"]]


def column(rows: IndexRows, table: str, name: str) -> list[int]:
    parts: Any = [part.make()[name] for part in rows.large_tables() if part.table == table]
    return [value for part in parts for value in part.tolist()]
