"""The program replaces the function by which the compiler updates its memory figures after it has moved a
communication, and the new function does nothing, so that further moves are decided by old figures.

$ stepscope run --check-recompute recompute_mismatch.py
warning: The memory figures of reorder_communication_preserving_peak_memory of graph 0/0 inference are wrong (2 times):
the peak is 20.5 kB (+0 B) at op1, node 2 of 5
"""

import sys

import torch
import torch._inductor.comms as comms
import torch._inductor.config as config
import torch.distributed as dist
from torch import Tensor
from torch.distributed._functional_collectives import all_gather_tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

config.reorder_for_locality = False
config.reorder_for_compute_comm_overlap = True
config.reorder_for_compute_comm_overlap_passes = ["reorder_communication_preserving_peak_memory"]
if "--fixed" not in sys.argv:
    comms._update_memory_tracking_after_swap_reorder = lambda *args, **kwargs: None


@torch.compile
def model(x: Tensor, w: Tensor, shard: Tensor) -> Tensor:
    hidden = x @ w @ w
    gathered: Tensor = all_gather_tensor(shard, 0, mesh)
    return hidden @ gathered


dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
mesh = init_device_mesh("cpu", (4,))
model(torch.randn(8, 64), torch.randn(64, 64), torch.randn(16, 64))
