"""Tells how calls of AOTInductor's packages are recorded and how packages check their inputs, unless the run did so."""

from __future__ import annotations

from pathlib import PurePath

from stepscope.tracer.schema.constants import PRINTED_KEY
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

MOST_NAMED = 3
_NO_GRAPHS = (
    "No compiled graph was called. Launches of AOTInductor's packages and of graphs with cpp_wrapper are recorded with"
    " --aoti launches"
)
_NOT_PRINTED = (
    "No compiled graph was called, and no launch was printed: PyTorch builds its printer into a package, or a graph"
    " with cpp_wrapper, when it compiles it"
)
_NOT_REACHED = (
    "but none was printed: it was not called, each call ended before its first launch, or the filter of kernels names"
    " none of them"
)
_ON_REQUEST = "packages check their inputs if AOTI_RUNTIME_CHECK_INPUTS=1 is set"
_UNCHECKED = (
    "AOTInductor's packages do not check the dtypes, sizes and strides of their inputs; run the program with"
    " AOTI_RUNTIME_CHECK_INPUTS=1 to find inputs that differ from those of the export."
)
_PACKAGED = """
    SELECT DISTINCT c.file, c.line FROM records r
    LEFT JOIN compiles c ON c.log = r.log AND c.compile_id IS NOT DISTINCT FROM r.compile_id
    WHERE r.name = 'inductor_aot_wrapper_code' ORDER BY ALL
"""
_PRINTED = "SELECT bool_or(starts_with(wrapper_key, ?)), bool_and(starts_with(wrapper_key, ?)) FROM graphs"
_VARIABLE = "SELECT EXISTS (FROM logs WHERE coalesce(run->>('$.machine.variables.' || ?), '0') <> '0')"


def package_hint(trace: Trace) -> list[str]:
    """Return what the run did not record or check of the packages that it compiled or called."""
    packages, is_checked = sql.rows(trace, _PACKAGED), _is_set(trace, "AOTI_RUNTIME_CHECK_INPUTS")
    if _printed(trace)[0]:
        return [] if is_checked else [_UNCHECKED]
    if not packages:
        return []
    places = [f"{PurePath(file).name}:{line}" for file, line in packages if file is not None]
    named = ", ".join(places[:MOST_NAMED]) + (", …" if len(places) > MOST_NAMED else "")
    what = f"AOTInductor compiled a package{f' ({named})' if named else ''}"
    if _prints(trace):
        return [f"{what} that prints its launches, {_NOT_REACHED}.", *([] if is_checked else [_UNCHECKED])]
    return [f"{what}, whose calls are recorded with --aoti launches{'' if is_checked else f'; {_ON_REQUEST}'}."]


def no_graphs_hint(trace: Trace) -> list[str]:
    """Return how to record packages, for a run that called no compiled graph, unless `package_hint` says it."""
    if sql.rows(trace, _PACKAGED):
        return []
    if _prints(trace):
        return [f"{_NOT_PRINTED}."]
    return [f"{_NO_GRAPHS}{'' if _is_set(trace, 'AOTI_RUNTIME_CHECK_INPUTS') else f'; {_ON_REQUEST}'}."]


def has_only_printed(trace: Trace) -> bool:
    """Return whether each graph of the trace was recorded from what PyTorch's debug printer printed."""
    return _printed(trace)[1]


def _printed(trace: Trace) -> tuple[bool, bool]:
    some, each = sql.row(trace, _PRINTED, [PRINTED_KEY, PRINTED_KEY]) or (None, None)
    return bool(some), bool(each)


def _prints(trace: Trace) -> bool:
    return _is_set(trace, "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER")


def _is_set(trace: Trace, variable: str) -> bool:
    return sql.row(trace, _VARIABLE, [variable]) == (True,)
