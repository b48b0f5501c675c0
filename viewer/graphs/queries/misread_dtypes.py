"""Queries tensors that generated kernels read as another dtype than they have, because a custom operator returned
another one than its fake kernel promises."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, partial

from stepscope.tracer.schema.constants import TORCH_NAMESPACES
from stepscope.viewer.graphs.queries.graphs import code_of_graph
from stepscope.viewer.graphs.queries.kernel_code import cut
from stepscope.viewer.store import sql
from stepscope.viewer.store.trace import Trace

_READ = """
    SELECT s.log, s.graph, p.site AS producer, s.site AS reader, s.kernel, s.kind, a.name, a.parameter,
           any_value(t.dtype) AS dtype, any_value(t.size) AS size,
           (SELECT min(launch) FROM launches x WHERE x.site = s.site) AS launch,
           (SELECT arg_min(step, launch) FROM launches x WHERE x.site = s.site) AS step
    FROM arguments a JOIN sites s ON s.site = a.site JOIN sites p ON p.site = a.version_site
    JOIN tensors t ON t.site = a.site AND t.argument = a.argument
    WHERE a.role <> 'out' AND a.parameter IS NOT NULL AND list_contains(['cpp', 'triton'], s.kind)
      AND p.kind = 'fallback' AND p.graph = s.graph AND starts_with(p.kernel, 'torch.ops.')
      AND NOT list_contains(?, split_part(p.kernel, '.', 3))
    GROUP BY ALL HAVING count(DISTINCT t.dtype) = 1 AND launch IS NOT NULL ORDER BY launch, a.parameter
"""
_CPP = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16", "bool": "bool",
    "int64_t": "int64", "int32_t": "int32", "int16_t": "int16", "int8_t": "int8", "uint8_t": "uint8",
    "at::Half": "float16", "at::BFloat16": "bfloat16",
}  # fmt: skip
_TRITON = {
    "*fp32": "float32", "*fp64": "float64", "*fp16": "float16", "*bf16": "bfloat16", "*i1": "bool", "*i64": "int64",
    "*i32": "int32", "*i16": "int16", "*i8": "int8", "*u8": "uint8",
}  # fmt: skip
_KNOWN = frozenset({*_CPP.values(), *_TRITON.values()})


@dataclass(frozen=True)
class MisreadDtype:
    """The first kernel that reads what a custom operator returned as another dtype."""

    log: int
    graph: int
    producer: int
    """The launch site of the operator."""
    reader: int
    """The launch site of the kernel."""
    name: str
    """The tensor in the call of the kernel."""
    returned: str
    """The dtype of the tensor."""
    promised: str
    """The dtype as which the kernel was compiled to read it."""
    size: list[int]
    launch: int
    """The first launch of the kernel."""
    step: int


def misread_dtypes(trace: Trace) -> list[MisreadDtype]:
    """Return the tensors in order of time, each with the first kernel that reads it."""
    return [*trace.once(_read)]


def misreading_sites(trace: Trace) -> frozenset[int]:
    """Return the launch sites that read the tensors first."""
    return frozenset(one.reader for one in misread_dtypes(trace))


def _read(trace: Trace) -> list[MisreadDtype]:
    found: dict[int, MisreadDtype] = {}
    definition = cache(partial(_definition, trace))
    for row in sql.rows(trace, _READ, [list(TORCH_NAMESPACES)]):
        log, graph, producer, reader, kernel, kind, name, parameter, dtype, size, launch, step = row
        compiled = _compiled_dtype(definition(graph, kernel, kind), kind, parameter)
        if compiled is not None and dtype in _KNOWN and compiled != dtype:
            found.setdefault(
                producer,
                MisreadDtype(log, graph, producer, reader, name, dtype, compiled, json.loads(size), launch, step),
            )
    return list(found.values())


def _definition(trace: Trace, graph: int, kernel: str, kind: str) -> str:
    part = cut(code_of_graph(trace, graph) or "", kernel, kind, None)
    return part.text if part is not None else ""


def _compiled_dtype(definition: str, kind: str, parameter: str) -> str | None:
    """Return the dtype of a pointer in the definition of a kernel, or None if it is unknown."""
    name = re.escape(parameter)
    if kind == "cpp":
        found = set(re.findall(rf"(?<![\w:])([\w:]+)\s*\*\s*(?:__restrict__\s+)?{name}\s*[,)]", definition))
        return _CPP.get(found.pop()) if len(found) == 1 else None
    found = set(re.findall(rf"""['"]{name}['"]: ['"](\*\w+)['"]""", definition))
    return _TRITON.get(found.pop()) if len(found) == 1 else None
