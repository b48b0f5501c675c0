"""What recording costs a sharded training step: ``torchrun --nproc-per-node N -m tests.benchmarks.bench_fsdp``.

Sixteen transformer blocks (width 2048, 1.1 billion parameters, bfloat16) under FSDP2, each block compiled and sharded,
with AdamW and 2 x 2048 tokens on each of N ranks. In one process group, in turns: the unrecorded step, the same again,
and each level. A turn takes as long as its slowest rank. Rank 0 prints ratios to the unrecorded step of the same turn.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import stepscope
from tests.benchmarks.bench_gpu import Step, report
from tests.benchmarks.bench_gpu_large import WAYS, Block
from tests.capture.logs import Trace

TURNS, WARM_TURNS, STEPS = 11, 2, 3


def build(rank: int) -> tuple[Step, int]:
    """Return the step and the number of parameters of the whole model."""
    torch.manual_seed(0)
    model = nn.Sequential(*[Block(2048, 16) for _ in range(16)]).cuda().bfloat16()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    for block in model:
        block.compile()
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(rank)
    x = torch.randn(2, 2048, 2048, device="cuda", dtype=torch.bfloat16)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(x).float().pow(2).mean().backward()
        optimizer.step()

    return step, parameters


def slowest_ms(step: Step, marks_steps: bool) -> float:
    dist.barrier()
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        step()
        if marks_steps:
            stepscope.step()
    torch.cuda.synchronize()
    taken = torch.tensor((time.perf_counter_ns() - start) / 1e6 / STEPS, device="cuda")
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


def in_turns(step: Step, folder: Path) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    ways = list(WAYS)
    with stepscope.trace(folder):
        for turn in range(TURNS + WARM_TURNS):
            for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
                stepscope.configure(**WAYS[way])
                for _ in range(2):
                    step()
                elapsed = slowest_ms(step, way not in ("off", "again"))
                if turn >= WARM_TURNS:
                    times[way].append(elapsed)
    return times


def main() -> int:
    if not torch.cuda.is_available() or "RANK" not in os.environ:
        print("torchrun and CUDA devices are needed")
        return 0
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    rank = dist.get_rank()
    step, parameters = build(rank)
    for _ in range(4):
        step()
    with tempfile.TemporaryDirectory() as folder:
        times = in_turns(step, Path(folder))
        trace = Trace(Path(folder))
    if rank == 0:
        print(f"torch {torch.__version__}, {dist.get_world_size()} x {torch.cuda.get_device_name()}")
        report(f"FSDP2, {parameters / 1e9:.2f} billion parameters", times)
        rows = sum(len(batch["min"]) for batch in trace.of("values"))
        print(f"  {sum(1 for _ in trace.launches()):,} launches and {rows:,} value rows in rank 0's log")
        for record in [*trace.of("skipped"), *trace.of("failure")]:
            print("  not recorded:", record)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
