"""Records of compiles that PyTorch gives no id, as those of AOTInductor: they are shown as one compile of their log."""

from __future__ import annotations

from stepscope.tracer.schema.records import ARTIFACT_PREFIX, CompileError

COMPILE_ERROR = ARTIFACT_PREFIX + CompileError.KIND
NO_ID = "-"
"""Stands for the id."""
_OF_A_COMPILE = frozenset(
    [
        "inductor_pre_grad_graph",
        "before_pre_grad_graph",
        "after_pre_grad_graph",
        "aot_joint_graph",
        "before_joint_graph",
        "after_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "aot_forward_graph_fw_metadata",
        "fx_graph_runnable",
        "before_post_grad_graph",
        "after_post_grad_graph",
        "inductor_post_grad_graph",
        "inductor_output_code",
        "inductor_aot_wrapper_code",
        "inductor_aot_kernel_code",
        "inductor_post_to_pre_grad_nodes",
        "inductor_triton_kernel_to_post_grad_nodes",
        "inductor_provenance_tracking_node_mappings",
        "inductor_provenance_tracking_kernel_stack_traces",
        "triton_kernel_info",
        "compilation_metrics",
        "bwd_compilation_metrics",
        COMPILE_ERROR,
        *(f"fx_graph_cache_{state}" for state in ("hit", "miss", "bypass")),
        *(f"aotautograd_cache_{state}" for state in ("hit", "miss", "bypass")),
    ]
)
"""Events, and names of artifacts and dumps."""


def is_of_a_compile(event: str, name: str | None) -> bool:
    return (name if event in ("artifact", "graph_dump") else event) in _OF_A_COMPILE
