"""Template filters for compiles: names of metrics and caches, signs, and the height of the flame chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from stepscope.viewer.text.formats import to_json

if TYPE_CHECKING:
    from stepscope.viewer.compiles.queries.compile_time import Flame
    from stepscope.viewer.compiles.rows import CompileRow

_AXIS_PX, _ROW_PX, _GAP_PX, _MINIMAP_PX, _MARKS_PX = 22, 16, 6, 30, 14
_ENDINGS = ("_cumulative_compile_time_us", "_compile_time_us", "_time_us", "_compile_time_s", "_time_s", "_us", "_s")
_NAMES = {
    "duration_us": "duration",
    "entire_frame_compile_time_s": "duration",
    "aot_autograd_cumulative_compile_time_us": "AOTAutograd",
    "backend_compile_time_s": "backend",
    "inductor_cumulative_compile_time_us": "Inductor",
    "inductor_compile_time_s": "Inductor",
    "inductor_code_gen_cumulative_compile_time_us": "code generation",
    "code_gen_time_s": "code generation",
    "triton_compile_time_us": "kernels",
    "dynamo_compile_time_before_restart_us": "before restart",
    "dynamo_time_before_restart_s": "before restart",
    "graph_op_count": "ops",
    "guard_count": "guards",
    "inductor_fx_local_cache_hit_count": "FX hits",
    "inductor_fx_local_cache_miss_count": "FX misses",
}


def flame_height(flame: Flame) -> int:
    """Return the chart's height in pixels, as `layout` in static/js/compiles/flame_model.js computes it."""
    rows = sum((lane.depth + 1) * _ROW_PX + _MARKS_PX + _GAP_PX for lane in flame.lanes)
    return _AXIS_PX + _MINIMAP_PX + _GAP_PX + rows


def metric_name(name: str) -> str:
    """Return the heading of a metric's column, shortened for the metrics that are shown by default."""
    ending = next((end for end in _ENDINGS if name.endswith(end)), "")
    return _NAMES.get(name) or name[: len(name) - len(ending)].replace("_", " ")


CACHE_NAMES = {
    "fx_graph": "FX graph cache",
    "aotautograd": "AOTAutograd cache",
    "bundled": "bundled FX graph",
    "dynamo": "dynamo cache",
    "precompile": "precompile cache",
    "profile": "profile of sizes (PGO)",
}
CACHE_SIGNS = {"hit": "●", "miss": "○", "bypass": "▽", "saved": "◆"}
STATUS_SIGNS = {
    "ok": "●",
    "graph break": "◐",
    "recompiled": "↻",
    "failed": "✖",
    "skipped": "○",
    "empty": "○",
    "fallback": "▽",
    "unfinished": "◌",
}


def compile_reason(row: CompileRow) -> str:
    return row.failure or row.graph_break_reason or row.recompile_reason or ""


def metric_text(value: object) -> str:
    return value if isinstance(value, str) else to_json(value)


FILTERS: Mapping[str, Callable[..., Any]] = {
    "flame_height": flame_height,
    "metric": metric_text,
    "metric_name": metric_name,
    "compile_status": attrgetter("shown_status"),
    "compile_reason": compile_reason,
}
GLOBALS = {"cache_names": CACHE_NAMES, "cache_signs": CACHE_SIGNS, "status_signs": STATUS_SIGNS}
