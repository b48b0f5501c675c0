"""More and more tensors that no graph allocated stay alive: inputs of graphs or results of eager operations that a
cache, a list, a hook or the like keeps. The recorder counts the tensors in Python at the start of steps 6, 12 and
18; at 100, 200 and 300; and, if none grew there, at 1,000, 2,000 and 3,000. If only the third count of a series is
missing when the recording ends, that is when it counts. If from one to the next each step added at least one tensor and
64 KiB of the same dtype, sizes and device, and their holder has a name, they are reported. The recorder counts only if
it follows the storages of every call, as it does by default if there is a C++ compiler. It delays a look after
which all of this would have taken more than 2 % of the time; only the last look of a series in which tensors grew, and
then the search for holders, may go beyond that by about a second, and delay later looks. Tensors in reference cycles
that wait for a garbage collection count as well; containers with a largest length and caches with a limit that have
hits do not. The finding is a warning only if the growth has no use: if the holder is a cache of `functools` without a
limit that was never hit and half of whose entries or more cannot be hit again, because nothing else refers to a tensor
in their keys; if each tensor is a result of a `torch.autograd.Function` whose `ctx` refers to it, and the program has
disabled the garbage collector, which alone frees it; or if autograd computed most of the tensors, so that each keeps
its graph alive, although backward passes of compiled graphs ran between the looks, and the growth went on beyond step
100, unlike that of an episode whose losses are released at its end. Otherwise it is information, since a replay buffer
and a data set in memory also grow for some time. The line is that of the cached function, of the only statement in the
source that adds to the container, or of the one that makes `ctx` refer to the result."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepscope.viewer.findings.evidence import MOST_EXAMPLES, Evidence, Timed, grouped, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.memory.queries.growth import growth
from stepscope.viewer.memory.queries.kept_tensors import KeptTensor, kept_tensors
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.sql import json_value
from stepscope.viewer.text.formats import basename, format_bytes, holder_text, plural, shape_text

_EARLY = 100
"""The last step up to which tensors that keep their graphs may be those of an episode or of an accumulation."""
SUMMARY = "More and more tensors outside of compiled code stay alive"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per holder."""
    told = {(row.log, _unnumbered(holder)) for row in growth(evidence.trace) or () for holder in row.holders}
    kept = [
        one
        for one in kept_tensors(evidence.trace)
        if (one.log, _unnumbered(one.holder)) not in told and not _is_bounded(one)
    ]
    groups = grouped(kept, lambda one: (one.log, _unnumbered(one.holder), one.file, one.line))
    return [_of_last_look(evidence, group) for group in groups]


def _of_last_look(evidence: Evidence, group: list[KeptTensor]) -> Timed:
    """Return the finding about what the last looks at a holder counted; earlier ones may have counted it as well."""
    last_ns = max(one.ns[-1] for one in group)
    return _finding(evidence, [one for one in group if one.ns[-1] == last_ns])


def _unnumbered(holder: str) -> str:
    """Return a holder without lengths, which change from look to look."""
    return re.sub(r" of \d+", "", holder)


def _is_bounded(one: KeptTensor) -> bool:
    """Return whether a holder has a limit and is of use until it is reached."""
    return one.most_elements is not None and (one.hits is None or one.hits > 0)


def _is_lost(one: KeptTensor) -> bool:
    """Return whether a cache was of no use, and half of its entries or more are of none later."""
    return one.hits == 0 and 2 * (one.lost_keys or 0) >= one.added


def _keeps_graphs(one: KeptTensor) -> bool:
    return one.step[-1] > _EARLY and 2 * one.added_with_graph > one.added and one.has_backward_passes


def _has_no_use(one: KeptTensor) -> bool:
    is_never_collected = one.cycle_is_collected is False
    return is_never_collected or (_is_lost(one) and one.most_elements is None) or _keeps_graphs(one)


def _finding(evidence: Evidence, kept: list[KeptTensor]) -> Timed:
    one = max(kept, key=lambda same: same.added_bytes)
    is_warned = any(map(_has_no_use, kept))
    steps = one.calls_step[-1] - one.calls_step[0]
    per_step = sum(same.added_bytes for same in kept) // steps
    return one.time_unix_ns, Finding(
        kind="kept_tensors",
        severity="warning" if is_warned else "info",
        title=f"Memory outside of compiled code grows by {format_bytes(per_step)} per step: more and more {one.dtype}"
        f" tensors of shape {_shape(one)}{_others(kept)} stay alive, held by {holder_text(one.holder)}{_where(one)}",
        proof=[*_proof(one)],
        rule=rule_of(__doc__),
        evidence={
            "bytes_per_step": per_step,
            "storage_bytes": sum(same.storage_bytes[-1] for same in kept),
            "tensors": sum(same.tensors[-1] for same in kept),
            "steps": steps,
            "forms": [_form(same) for same in kept][:MOST_EXAMPLES],
            "device": one.device,
            "holders": [one.holder],
            "hits": one.hits,
            "lost_keys": one.lost_keys,
        },
        page="/memory",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=line_at(one.file, one.line),
    )


def _form(one: KeptTensor) -> str:
    return f"{one.dtype} {_shape(one)}"


def _shape(one: KeptTensor) -> str:
    return shape_text(json_value(one.sizes))


def _others(kept: list[KeptTensor]) -> str:
    return f" and of {plural(len(kept) - 1, 'other form')}" if len(kept) > 1 else ""


def _where(one: KeptTensor) -> str:
    """Return the place of a cached function, or the line that adds to a container."""
    if one.hits is None and one.cycle_is_collected is None and one.file and one.line is not None:
        return f", to which {basename(one.file)}:{one.line} adds"
    return place(line_at(one.file, one.line))


def _proof(one: KeptTensor) -> Iterator[str]:
    numbers = [f"{number:,}" for number in one.tensors]
    yield (
        f"{numbers[0]}, {numbers[1]} and {numbers[2]} of them were alive at the start of steps {one.step[0]},"
        f" {one.step[1]} and {one.step[2]}; the last ones have {format_bytes(one.storage_bytes[-1])} together"
    )
    if one.hits is not None:
        yield f"The cache was hit {plural(one.hits, 'time')}" if one.hits else "The cache was never hit"
    if one.lost_keys:
        yield (
            f"{one.lost_keys:,} of its entries cannot be hit again: tensors in keys are compared by identity, and"
            " nothing else refers to those of these entries"
        )
    if one.most_elements is not None:
        yield f"The cache keeps at most {plural(one.most_elements, 'result')}"
    if one.cycle_is_collected is not None:
        yield (
            "Each is a result of a function whose context refers to it, so that only Python's garbage collector frees"
            f" it{'' if one.cycle_is_collected else ', which the program has disabled'}; ctx.save_for_backward() keeps"
            " a result without a reference cycle"
        )
    elif 2 * one.added_with_graph > one.added:
        number = f"{one.with_graph[-1]:,}"
        yield f"Autograd computed {number} of them, and each keeps its autograd graph alive; detach() releases it"
