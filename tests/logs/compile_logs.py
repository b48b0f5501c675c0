"""Builds logs of compiles as PyTorch writes them: graphs at each stage, restarts, failed guards, caches, provenance."""

from __future__ import annotations

from typing import Any

import orjson

from tests.logs.synthetic import LogBuilder

PRE_GRAD = """class GraphModule(torch.nn.Module):
    def forward(self, L_x_: "f32[4]", L_w_: "f32[4]"):
        l_x_ = L_x_
        l_w_ = L_w_

        # File: /src/model.py:12 in forward, code: y = x @ w
        y: "f32[4]" = torch.matmul(l_x_, l_w_);  l_x_ = l_w_ = None

        # File: /src/model.py:13 in forward, code: return y.relu() + 1
        relu: "f32[4]" = y.relu();  y = None
        add: "f32[4]" = relu + 1;  relu = None
        return (add,)
"""
POST_GRAD = """class <lambda>(torch.nn.Module):
    def forward(self, arg0_1: "f32[4]", arg1_1: "f32[4]"):
        # File: /src/model.py:12 in forward, code: y = x @ w
        mm: "f32[4]" = torch.ops.aten.mm.default(arg0_1, arg1_1);  arg0_1 = arg1_1 = None

        # File: /src/model.py:13 in forward, code: return y.relu() + 1
        relu: "f32[4]" = torch.ops.aten.relu.default(mm);  mm = None
        add: "f32[4]" = torch.ops.aten.add.Tensor(relu, 1);  relu = None
        return (add,)
"""
CODE = """# AOT ID: ['0_forward']
import torch

# Source node to ATen node mapping:
#   add => add
#   relu => relu
# Graph fragment:
#   %mm : Tensor "f32[4]" = PlaceHolder[target=mm]
#   %relu : Tensor "f32[4]" = call_function[target=torch.ops.aten.relu.default](args = (%mm,), kwargs = {})
#   %add : Tensor "f32[4]" = call_function[target=torch.ops.aten.add.Tensor](args = (%relu, 1), kwargs = {})
triton_poi_fused_add_relu_0 = async_compile.triton('triton_poi_fused_add_relu_0', '''
@triton.jit
def triton_poi_fused_add_relu_0(in_out_ptr0):
    pass
''', device_str='cuda')

def call(args):
    arg0_1, arg1_1 = args
    # [Provenance debug handles] extern_kernels.mm:1
    extern_kernels.mm(arg0_1, arg1_1,
                      out=buf0)
    # [Provenance debug handles] triton_poi_fused_add_relu_0:2
    stream0 = get_raw_stream(0)
    triton_poi_fused_add_relu_0.run(buf0, 4, stream=stream0)
    return (buf0, )
"""
MAPPINGS = {
    "preToPost": {"y": ["mm"], "relu": ["relu"], "add": ["add"]},
    "postToPre": {"mm": ["y"], "relu": ["relu"], "add": ["add"]},
    "cppCodeToPost": {"extern_kernels.mm:1": ["mm"], "triton_poi_fused_add_relu_0:2": ["add", "relu"]},
    "postToCppCode": {},
    "version": 2.0,
}
STACKS = {
    "extern_kernels.mm:1": ['  File "/src/model.py", line 12, in forward\n    y = x @ w\n        ~~^~~\n'],
    "triton_poi_fused_add_relu_0:2": ['  File "/src/model.py", line 13, in forward\n    return y.relu() + 1\n'],
}
BACKWARD_CODE = CODE.replace("0_forward", "0_backward")
GUARDS = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None                     # _dynamo/output_graph.py:1122 in init
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x'), type=<class 'torch.Tensor'>
| | +- TENSOR_MATCH: check_tensor(L['x'], Tensor, torch.float32, size=[4, 16])  # y = x @ w  # model.py:12 in forward
| +- GuardManager: source=L['step'], accessed_by=FrameLocalsGuardAccessor(key='step'), type=<class 'int'>
| | +- EQUALS_MATCH: L['step'] == 0  # if step == 0:  # model.py:11 in forward

Guard latency = 3.21 us
"""


def ids(frame: int, number: int, attempt: int = 0) -> dict[str, Any]:
    return {"frame_id": frame, "frame_compile_id": number, "attempt": attempt}


def stack(*frames: tuple[str, int, str, str]) -> dict[str, Any]:
    return {"stack": [{"filename": f, "line": n, "name": name, "loc": loc} for f, n, name, loc in frames]}


MAIN = ("/src/train.py", 40, "main", "loss = model(x)")
CALL = ("/env/torch/_dynamo/eval_frame.py", 7, "_fn", "return fn(*args)")
FORWARD = ("/src/model.py", 10, "forward", "")


def metrics(log: LogBuilder, frame: int, number: int, **changes: Any) -> LogBuilder:
    values = {
        "co_name": "forward", "co_filename": "/src/model.py", "co_firstlineno": 10, "fail_type": None,
        "fail_reason": None, "restart_reasons": [], "has_guarded_code": True, "graph_op_count": 3, "duration_us": 1500,
        **changes,
    }  # fmt: skip
    return log.torch("compilation_metrics", values, **ids(frame, number))


def compiled(log: LogBuilder, frame: int, number: int, attempt: int = 0, provenance: bool = True) -> LogBuilder:
    """Add a forward and a backward graph at all stages; only the forward graph has provenance mappings."""
    here = ids(frame, number, attempt)
    log.torch("dynamo_output_graph", {"sizes": {}}, PRE_GRAD.encode(), **here)
    log.artifact("before_pre_grad_graph", PRE_GRAD.encode(), "string", **here)
    for event in ("aot_joint_graph", "aot_forward_graph", "aot_backward_graph"):
        log.torch(event, {}, POST_GRAD.encode(), **here)
    for code, map in ((CODE, MAPPINGS), (BACKWARD_CODE, {"version": 2.0})):
        log.artifact("before_post_grad_graph", POST_GRAD.encode(), "string", **here)
        log.artifact("inductor_post_grad_graph", POST_GRAD.encode(), "string", **here)
        key = "cforward" if code is CODE else "cbackward"
        log.torch("inductor_output_code", {"filename": f"/tmp/x/{key}.py"}, code.encode(), **here)
        if provenance:
            log.artifact("inductor_provenance_tracking_node_mappings", orjson.dumps(map), **here)
            log.artifact("inductor_provenance_tracking_kernel_stack_traces", orjson.dumps(STACKS), **here)
        log.artifact("fx_graph_cache_miss", b'{"key": "fabc", "cache_state": "miss", "components": ["a", "b"]}', **here)
    return log.torch("dynamo_cpp_guards_str", {}, GUARDS.encode(), **here)


def run() -> LogBuilder:
    """Return a log in which 0/0 restarts and has a backward graph, failed guards cause 0/1 and 0/2, 1/0 has no
    operations, 2/0 comes from the cache, 3/0 fails, and 4/0 has no stack."""
    log = LogBuilder()
    log.torch("dynamo_start", stack(MAIN, CALL, FORWARD), **ids(0, 0))
    log.artifact(
        "dynamo_graph_break_reason",
        b"Graph break in user code at /src/model.py:11\nGraph Break Reason: print is not traced\n",
        "string",
        **ids(0, 0),
    )
    compiled(log, 0, 0, attempt=1)
    metrics(log, 0, 0)
    reasons = {
        1: "0/0: tensor 'x' size mismatch at index 0. expected 4, actual 6",
        2: "0/1: tensor 'x' size mismatch at index 1. expected 16, actual 8\n0/0: L['step'] == 0       # if step == 0:",
    }
    for number, reason in reasons.items():
        log.artifact("recompile_reasons", reason.encode(), **ids(0, number))
        log.torch("dynamo_start", stack(MAIN, CALL, FORWARD), **ids(0, number))
        symbol = {"symbol": "s0", "val": "6", "vr": "[2, int_oo]", "source": "L['x'].size()[0]", "user_stack": [
            {"filename": "/src/model.py", "line": 12, "name": "forward", "loc": "y = x @ w"}]}  # fmt: skip
        log.torch("create_symbol", symbol, **ids(0, number))
        fixed = {"symbol": "s0", "sources": ["L['x'].size()[0]"], "value": "6", "reason": "it is compared with 6"}
        log.torch("symbolic_shape_specialization", fixed, **ids(0, number))
        compiled(log, 0, number, provenance=False)
        metrics(log, 0, number)
    log.torch("dynamo_start", stack(MAIN, ("/src/other.py", 3, "empty", "")), **ids(1, 0))
    metrics(log, 1, 0, co_name="empty", graph_op_count=0)
    log.torch("dynamo_start", stack(MAIN, ("/src/other.py", 5, "cached", "")), **ids(2, 0))
    log.torch("dynamo_output_graph", {}, PRE_GRAD.encode(), **ids(2, 0))
    log.torch("aot_inference_graph", {}, POST_GRAD.encode(), **ids(2, 0))
    log.torch("inductor_output_code", {"filename": "/tmp/x/ccached.py"}, CODE.encode(), **ids(2, 0))
    log.artifact("fx_graph_cache_hit", b'{"key": "fabc", "cache_state": "hit", "time_saved_ns": 2000000}', **ids(2, 0))
    metrics(log, 2, 0, co_name="cached")
    log.torch("dynamo_start", stack(MAIN, ("/src/other.py", 9, "bad", "")), **ids(3, 0))
    metrics(log, 3, 0, co_name="bad", fail_type="BackendCompilerFailed", fail_reason="no such backend")
    return metrics(log, 4, 0, co_name="orphan")


def without_id() -> LogBuilder:
    """Return a log as AOTInductor writes it, in which records have Python stacks instead of compile ids."""
    user = {"filename": 1, "line": 6, "name": "main", "loc": "aoti_compile_and_package(ep)"}
    inner = {"filename": 2, "line": 9, "name": "trace_structured", "loc": "raise"}
    here: dict[str, Any] = {"stack": [user, inner]}
    log = LogBuilder().torch("str", ["/src/pack.py", 1]).torch("str", ["/env/torch/_logging/_internal.py", 2])
    log.artifact("before_pre_grad_graph", PRE_GRAD.encode(), "string", **here)
    log.torch("aot_inference_graph", {}, POST_GRAD.encode(), **here)
    log.artifact("inductor_post_grad_graph", POST_GRAD.encode(), "string", **here)
    log.torch("graph_dump", {"name": "inductor_aot_wrapper_code"}, CODE.encode(), **here)
    log.artifact("inductor_provenance_tracking_node_mappings", orjson.dumps(MAPPINGS), **here)
    return log.artifact("torch_version", b'{"pytorch_version": "2.13.0"}').torch("link", {"name": "n", "url": "u"})
