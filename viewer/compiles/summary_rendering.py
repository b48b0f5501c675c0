"""Filters of the templates about compilation over a whole run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stepscope.viewer.compiles.queries.compile_time import Flame

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
    """The same sum as `layout` in static/js/compiles/flame_model.js: the page keeps the room before the script runs."""
    rows = sum((lane.depth + 1) * _ROW_PX + _MARKS_PX + _GAP_PX for lane in flame.lanes)
    return _AXIS_PX + _MINIMAP_PX + _GAP_PX + rows


def metric_name(name: str) -> str:
    """What stands above a column: short for those that are shown first."""
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
FINDING_PAGES = {
    "graph_break": ("/graph-breaks", "all graph breaks"),
    "recompile": ("/recompiles", "all recompiles"),
    "recompile_limit": ("/recompiles", "all recompiles"),
    "cache_bypass": ("/caches?state=bypass", "all bypasses"),
    "draft_export": ("/draft-export", "report of draft export"),
    "rank_divergence": ("/ranks", "all ranks"),
}
"""Kind of finding -> where all of its like stand together, and what the link says."""
FILTERS: Mapping[str, Callable[..., Any]] = {"flame_height": flame_height, "metric_name": metric_name}
