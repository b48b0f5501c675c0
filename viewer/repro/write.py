"""Writes a script that repeats one launch of a trace, with tensors in files beside it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepscope.viewer.errors import StepscopeError
from stepscope.viewer.findings import all_findings
from stepscope.viewer.findings.crash.deaths import deaths
from stepscope.viewer.graphs.queries.graphs import wrapper_code
from stepscope.viewer.graphs.queries.kernel_configs import compiled_config
from stepscope.viewer.graphs.queries.launches import launch_detail
from stepscope.viewer.judged.queries.verdicts import verdict_on
from stepscope.viewer.kernel_source.arithmetic import Number
from stepscope.viewer.kernel_source.symbol_sizes import Sizes
from stepscope.viewer.overview.queries.runs import list_runs
from stepscope.viewer.repro.arguments import Arguments, Spec, gather
from stepscope.viewer.repro.launch_code import LaunchCode, launch_code, parse
from stepscope.viewer.repro.queries import (
    launch_before,
    launches_of_step,
    saved_at,
    shapes_of_function,
    was_in_flight,
)
from stepscope.viewer.repro.script import script, tidy
from stepscope.viewer.steps.rows import LaunchDetail
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.clean import clean
from stepscope.viewer.text.formats import launch_text, nth
from stepscope.viewer.values.queries.saved_files import copy_tensor, read_tensor

_RANDOM = re.compile(r"rand|bernoulli|dropout|normal|multinomial|poisson|exponential|uniform")
_KINDS_WITHOUT_A_KERNEL = {
    "unknown": "is a statement of unknown form, so there is no kernel to run",
    "subgraph": "calls a part of the graph; choose a launch inside it",
    "collective": "is a collective, which a single process cannot run",
}


@dataclass(frozen=True)
class Reproducer:
    """A script that was written."""

    path: Path
    kernel: str
    where: str
    made_up: list[str]
    files: list[Path]
    """Files of tensors beside the script."""


def write_reproducer(trace: Trace, launch: int, out: Path, *, embed_bytes: int, force: bool = False) -> Reproducer:
    """Write a script that runs `launch` to `out`, with at most `embed_bytes` of tensors in it and the others beside it.

    Raises StepscopeError if there is no such launch, if the log lacks what the script needs, or if a file exists and
    `force` is not set.
    """
    detail = launch_detail(trace, launch) if 0 <= launch < 2**63 else None
    if detail is None:
        raise StepscopeError(
            f"There is no launch {launch} in this trace; page addresses and `summary --json` give the numbers."
        )
    if os.path.lexists(out) and not force:
        raise StepscopeError(f"{out} already exists: give another name, or --force.")
    site = detail.site
    if site.kind in _KINDS_WITHOUT_A_KERNEL:
        raise StepscopeError(f"Launch {launch} ({clean(site.kernel)}) {_KINDS_WITHOUT_A_KERNEL[site.kind]}.")
    source = wrapper_code(trace, detail.graph)
    if source is None:
        raise StepscopeError(f"The log does not contain the generated code of launch {launch}.")
    saved = _Saved(trace, out, embed_bytes)
    try:
        verdict = verdict_on(trace, detail.log, detail.step, launch)
        judged = [] if verdict is None else [one.details for one in verdict.buffers if one.verdict == "wrong"]
        wrong = [row for row in judged if row is not None]
        earlier = launch_before(trace, launch, site.site)
        arguments = gather(detail, None if earlier is None else launch_detail(trace, earlier), wrong, saved.find)
        code = _code(trace, detail, source, arguments.names)
    except StepscopeError as error:
        raise StepscopeError(clean(str(error))) from None
    except RecursionError:
        raise StepscopeError(f"The code of launch {launch} in the log is nested too deeply.") from None
    spec = _spec(trace, detail, arguments, code)
    text = script(out.name, spec, code, saved.embedded)
    files = [copy_tensor(trace, tensor, path, force=force) and path for tensor, path in saved.files.items()]
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StepscopeError(f"The file {out} cannot be written: {error.strerror or error}") from None
    return Reproducer(out, spec["kernel"], spec["where"], spec["made_up"], [path for path in files if path])


def launch_in_step(trace: Trace, ordinal: int, step: int, rank: int | None) -> int:
    """Return the `ordinal`-th launch of a step, from 1. Raises StepscopeError if there is none or more than one."""
    found = launches_of_step(trace, step, rank)
    whose = f"step {step}" if rank is None else f"step {step} of rank {rank}"
    if len(found) > 1:
        raise StepscopeError(
            f"{len(found)} logs of this trace have a step {step}: choose one with --rank, or give one log."
        )
    if not found or not 1 <= ordinal <= found[0].count:
        count = found[0].count if found else 0
        raise StepscopeError(f"There is no {nth(ordinal)} launch in {whose}: it has {count:,}.")
    return found[0].first + ordinal - 1


def worst_launch(trace: Trace) -> int:
    """Return the launch of the worst finding that names one. Raises StepscopeError if none does."""
    launches = (finding.launch for finding in all_findings(trace) if finding.launch is not None)
    launch = next(launches, None)
    if launch is None:
        raise StepscopeError("No finding of this trace names a launch: choose one with --launch N.")
    return launch


class _Saved:
    """Saved tensors of a script: those that fit are embedded in it, the others are in files beside it."""

    def __init__(self, trace: Trace, out: Path, embed_bytes: int) -> None:
        self.embedded: dict[str, bytes] = {}
        self.files: dict[int, Path] = {}
        self._trace, self._room = trace, embed_bytes
        self._folder = out.with_name(f"{out.stem}_tensors")

    def find(
        self, launch: int, site: int, argument: int, item: int | None, moment: str, size: list[int]
    ) -> Spec | None:
        place = saved_at(self._trace, launch, site, argument, item, moment)
        data = None if place is None or place.size != size else read_tensor(place, self._room)
        if place is None or data is None:
            return None
        digest = place.sha256
        if isinstance(data, bytes):
            if digest not in self.embedded:
                self._room -= len(data)
            self.embedded[digest] = data
            return {"sha256": digest, "file": None}
        path = self._folder / f"{place.tensor}.pt"
        self.files[place.tensor] = path
        return {"sha256": digest, "file": [self._folder.name, path.name]}


def _code(trace: Trace, detail: LaunchDetail, source: str, names: list[str]) -> LaunchCode:
    site = detail.site

    def size_of(function: Any, node: Any) -> Number | None:
        if not sizes:
            shapes = shapes_of_function(trace, site.graph, site.function, detail.call)
            recorded = {shape.name: (shape.size, shape.stride) for shape in shapes}
            sizes.append(Sizes(function, recorded, detail.symbols))
        return sizes[0].value(node)

    sizes: list[Sizes] = []
    return launch_code(parse(source), (site.function, site.line), site.kernel, site.kind, names, size_of)


def _spec(trace: Trace, detail: LaunchDetail, arguments: Arguments, code: LaunchCode) -> Spec:
    site = detail.site
    run = next(run for run in list_runs(trace) if run.log == detail.log)
    rank = "" if detail.rank is None else f", rank {detail.rank}"
    is_random = bool(_RANDOM.search(site.kernel)) and code.kernel is None
    notes = [f"{name} was {number}" for name, number in code.sizes.items() if not name.lstrip("-").isdigit()]
    if is_random:
        notes.append("the operator draws random numbers: its outputs are not the recorded ones")
    return {
        "kernel": tidy([site.kernel])[0],
        "where": tidy([f"{launch_text(detail.launch, detail.step)}{rank}"])[0],
        "recorded_with": tidy([f"torch {run.torch or 'of an unknown version'} on {', '.join(run.devices) or 'cpu'}"])[
            0
        ],
        "made_up": tidy(arguments.made_up),
        "notes": tidy(notes),
        "exact": arguments.exact and not is_random,
        "config": detail.config or compiled_config(trace, detail.graph, site.kernel),
        "died_of": next((tidy([text])[0] for text in _symptoms(trace, detail.launch)), None),
        "did_not_return": detail.duration_ns is None or was_in_flight(trace, detail.launch),
        "bound": code.bound,
        "moved_bytes": arguments.moved_bytes,
        "storages": arguments.storages,
        "arguments": [{**argument, "name": tidy([argument["name"]])[0]} for argument in arguments.tensors],
        "wrong": [{**row, "name": tidy([row["name"]])[0]} for row in arguments.wrong],
        "after": [{**row, "name": tidy([row["name"]])[0]} for row in arguments.after],
    }


def _symptoms(trace: Trace, launch: int) -> Iterator[str]:
    """Yield the symptoms of processes that died at `launch` or with it in flight."""
    for death in deaths(trace):
        if death.symptom is not None and launch in (death.blamed, *(row.launch for row in death.on_device)):
            yield death.symptom
