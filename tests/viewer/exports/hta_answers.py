"""Prints, as JSON, what Holistic Trace Analysis answers about the traces in a folder. It runs in an interpreter of its
own, with HTA and without stepscope."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any


def answers(folder: str) -> dict[str, Any]:
    found = import_module("hta.trace_analysis").TraceAnalysis(trace_dir=folder)
    ranks = sorted(found.t.traces)
    kinds, kernels = found.get_gpu_kernel_breakdown(visualize=False, num_kernels=20, duration_ratio=1.0)
    idle, _ = found.get_idle_time_breakdown(ranks=ranks, visualize=False)
    launches = found.get_cuda_kernel_launch_stats(ranks=ranks, visualize=False)
    queue = found.get_queue_length_summary(ranks=ranks)
    path, is_found = found.critical_path_analysis(rank=ranks[0], annotation="ProfilerStep", instance_id=(1, 2))
    steps = found.t.get_iterations(ranks[0])
    return {
        "ranks": ranks,
        "steps": [int(step) for step in steps],
        "temporal": found.get_temporal_breakdown(visualize=False).to_dict("records"),
        "idle": idle.to_dict("records"),
        "kinds": kinds.to_dict("records"),
        "kernels": kernels.to_dict("records"),
        "overlap": found.get_comm_comp_overlap(visualize=False).to_dict("records"),
        "launches": {rank: rows.to_dict("records") for rank, rows in launches.items()},
        "queue": None if queue is None else queue.reset_index().to_numpy().tolist(),
        "is_path_found": bool(is_found),
        "path": path.get_critical_path_breakdown().groupby("bound_by").duration.sum().to_dict() if is_found else None,
    }


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(answers(sys.argv[1]), file, default=float)
