"""Names of the records that PyTorch writes, up to 2.13. Others are kept too, and named to the user."""

from __future__ import annotations

UNREADABLE = "unreadable"
"""A record whose JSON cannot be read."""
UNKNOWN_EVENT = "unknown_event:"
"""Before the name of an unknown kind, among the keys of the index's `meta`."""

KNOWN_EVENTS = frozenset(
    [
        "aot_autograd_backward_compilation_metrics",
        "aot_backward_graph",
        "aot_forward_graph",
        "aot_inference_graph",
        "aot_joint_graph",
        "artifact",
        "bwd_compilation_metrics",
        "bwd_compilation_metrics_runtime",
        "chromium_event",
        "compilation_metrics",
        "compilation_metrics_runtime",
        "compiled_autograd_graph",
        "create_symbol",
        "create_unbacked_symbol",
        "describe_source",
        "describe_storage",
        "describe_tensor",
        "dump_file",
        "dynamo_cpp_guards_str",
        "dynamo_guards",
        "dynamo_output_graph",
        "dynamo_start",
        "export",
        "exported_program",
        "expression_created",
        "graph_dump",
        "guard_added",
        "guard_added_fast",
        "guard_on_data_dependent_error",
        "inductor_input_graph",
        "inductor_output_code",
        "inductor_post_grad_graph",
        "inductor_pre_grad_graph",
        "link",
        "mismatched_fake_kernel",
        "missing_fake_kernel",
        "optimize_ddp_split_child",
        "optimize_ddp_split_graph",
        "propagate_real_tensors",
        "propagate_real_tensors_provenance",
        "str",
        "symbolic_shape_specialization",
    ]
) | {UNREADABLE}
