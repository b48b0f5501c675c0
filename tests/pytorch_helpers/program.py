"""Compiles one model once, recorded, while PyTorch's own helpers look at the same compile and the same tensors.

    python -m tests.pytorch_helpers.program FOLDER

The log comes into FOLDER, and what the helpers said into `said.json` beside it. Afterwards the model is compiled again
without a recorder, with PyTorch's printer of intermediate values; what it prints is part of `said.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor import utils
from torch._inductor.codegen.debug_utils import _print_debugging_tensor_value_info
from torch._inductor.scheduler import Scheduler, SchedulerNode
from torch._inductor.virtualized import V

import stepscope

PRINTER = "aot_inductor.debug_intermediate_value_printer"


def model(value: torch.Tensor, weight: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = torch.relu(value @ weight) + index
    ordered = hidden.sort(0)[0]
    return (ordered.softmax(-1) * value.sum()).sin(), torch.log(hidden[:2, :3] - 1)


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The first begins 4 bytes behind the beginning of its storage, so that it is not aligned."""
    torch.manual_seed(0)
    value = torch.randn(97)[1:].view(12, 8)
    return value, torch.randn(8, 8, requires_grad=True), torch.arange(8)


def printed(function: Callable[..., object], *arguments: object) -> str:
    text = StringIO()
    with redirect_stdout(text):
        function(*arguments)
    return text.getvalue()


def schedules(scheduler: Scheduler) -> list[dict[str, Any]]:
    """What `dump_node_schedule` prints of each node that it knows, before fused ones were put together."""
    nodes = [node for fused in scheduler.nodes for node in fused.get_nodes() if isinstance(node, SchedulerNode)]
    return [{"node": node.get_name(), "text": printed(utils.dump_node_schedule, [node])} for node in nodes]


def metadata(scheduler: Scheduler) -> dict[str, str]:
    """Operation -> the comment that `get_kernel_metadata` makes for it, of C++ kernels as well."""
    found = {}
    for node in (node for fused in scheduler.nodes for node in fused.get_nodes()):
        schedule: Any = [node] if isinstance(node, SchedulerNode) else node.node
        found[node.get_name()] = utils.get_kernel_metadata(schedule, V.graph.wrapper_code)[0]
    return found


def recorded(folder: Path) -> dict[str, Any]:
    said: dict[str, Any] = {"kernels": [], "schedules": [], "scheduled": [], "metadata": []}

    def scheduled(scheduler: Scheduler, _: object) -> None:
        said["scheduled"].append([node.get_name() for node in scheduler.nodes])
        said["schedules"].append(schedules(scheduler))
        said["metadata"].append(metadata(scheduler))

    arguments = inputs()
    compiled = torch.compile(model)
    with ExitStack() as stack:
        stack.enter_context(inductor_config.patch({"debug_ir_traceback": True}))
        stack.enter_context(stepscope.trace(folder, level="values"))
        stack.enter_context(utils.collect_defined_kernels(said["kernels"]))
        stack.enter_context(utils.add_scheduler_init_hook(lambda *_: None, scheduled))
        results: list[torch.Tensor] = []

        def forward() -> torch.Tensor:
            results.extend(compiled(*arguments))
            return results[0]

        (_, said["code"]), lowerings = utils.run_and_get_graph_lowering(utils.run_fw_bw_and_get_code, forward)
    said["buffers"] = [[buffer.get_name() for buffer in lowering.buffers] for lowering in lowerings]
    looked_at = {"value": arguments[0], "weight": arguments[1], "sines": results[0], "logarithms": results[1]}
    said["tensors"] = {
        name: printed(_print_debugging_tensor_value_info, name, tensor.detach()) for name, tensor in looked_at.items()
    }
    said["is_aligned"] = [utils.tensor_is_aligned(argument.detach()) for argument in arguments]
    said["is_assumed_aligned"] = [utils.should_assume_input_aligned(argument.detach()) for argument in arguments]
    return said


def with_printer() -> str:
    """What level 2 of the printer prints in a Python wrapper."""
    torch._dynamo.reset()
    with inductor_config.patch({PRINTER: "2"}), torch.no_grad():
        return printed(torch.compile(model), *inputs())


def main(folder: Path) -> None:
    said = recorded(folder)
    said["printed"] = with_printer()
    folder.joinpath("said.json").write_text(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
