"""Builds a trace with something to show on every page: values, memory, compiles, their summaries, and two ranks."""

from __future__ import annotations

from pathlib import Path

from tests.logs import compile_logs, compile_summary_logs, judged_logs, memory_logs, memory_records, overflow_log


def write_rich(folder: Path) -> Path:
    summaries = compile_summary_logs
    memory = memory_logs.training(keep=2, allocator=True, end=False, rank=1, world_size=2, pid=4712)
    memory.record(memory_records.growth([(2, 4), (4, 4)], ["list in train.py:12"]))
    memory.record(memory_records.recompute())
    logs = {
        "overflow": judged_logs.judged(overflow_log.recorded(graphs=2, rank=0, world_size=2)),
        "memory": memory,
        "compiles": compile_logs.run(),
        "breaks": summaries.with_breaks(),
        "recompiles": summaries.with_recompiles(),
        "caches": summaries.with_caches(),
        "cuda_graphs": summaries.with_cuda_graphs(),
        "draft_export": summaries.with_draft_export(),
        "vllm": summaries.with_vllm(),
    }
    for name, log in logs.items():
        log.write(folder / f"{name}.log")
    return folder
