"""Builds the log of a training run whose compile tells what the program calls the inputs and outputs of its graphs.

The forward graph of `memory_logs` gets ``self.layers.3.weight`` (`primals_1`, a parameter) and ``x`` (`primals_2`). It
returns the loss (`buf2`, output 0) and saves `buf1`.
"""

from __future__ import annotations

from typing import Any

from stepscope.tracer.schema.constants import OUTPUT_CODE
from tests.logs.memory_logs import training
from tests.logs.synthetic import LogBuilder

WEIGHT = "self.layers.3.weight"
SOURCE = "L['self']._modules['layers']._modules['3']._parameters['weight']"
IDS: dict[str, Any] = {"frame_id": 0, "frame_compile_id": 0, "attempt": 0}
_MANGLED = "L_self_modules_layers_modules_3_parameters_weight_"
_DYNAMO = f"""class GraphModule(torch.nn.Module):
    def forward(self, {_MANGLED}: "f32[8, 8][8, 1]cpu", L_x_: "f32[4, 8][8, 1]cpu"):
        l_x_ = L_x_
"""
_FORWARD = """class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[8, 8][8, 1]cpu",  # PlainAOTInput(idx=0)
        primals_2: "f32[4, 8][8, 1]cpu",  # PlainAOTInput(idx=1)
    ):
        return (
            mean,  # PlainAOTOutput(idx=0)
            relu,  # SavedForBackwardsAOTOutput(idx=0)
        )
"""
_CODE = """def call(self, args):
    primals_1, primals_2 = args
    args.clear()
    return (buf2, buf1, )
"""


def named_training(steps: int = 3) -> LogBuilder:
    """Return `memory_logs.training` after PyTorch's records of its compile."""
    log = LogBuilder()
    log.torch("dynamo_start", {"stack": []}, **IDS)
    for number, source, is_parameter in ((0, SOURCE, True), (1, "L['x']", False)):
        log.torch("describe_tensor", {"id": number, "describer_id": 0, "is_parameter": is_parameter}, **IDS)
        log.torch("describe_source", {"id": number, "describer_id": 0, "source": source}, **IDS)
    log.torch("dynamo_output_graph", {"sizes": {}}, _DYNAMO.encode(), **IDS)
    log.torch("aot_forward_graph", {}, _FORWARD.encode(), **IDS)
    log.artifact(f"{OUTPUT_CODE}0", _CODE.encode(), "string", **IDS)
    return log.raw(training(steps).data)
