"""The artifacts that PyTorch 2.6 to 2.15 and vLLM log, each with title, view, stage and compile."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.ingest.torch_trace.record_kind import RecordKind


def _kinds(view: str, titles: Mapping[str, tuple[str, str]]) -> dict[str, RecordKind]:
    return {name: RecordKind(title, says, view) for name, (title, says) in titles.items()}


_CACHES = {
    "fx_graph_cache": ("FX graph cache", "Inductor's lookup of the graph in the cache of compiled graphs."),
    "aotautograd_cache": (
        "AOTAutograd cache",
        "AOTAutograd's lookup of a whole compile: forward, backward and metadata.",
    ),
}
_STATES = {"hit": "hit", "miss": "miss", "bypass": "bypassed", "saved": "saved", "hash": "key"}

_GRAPHS: Mapping[str, tuple[str, str]] = {
    "aot_inference_graph_after_hop_passes": (
        "Inference graph after passes over higher-order operators",
        "The inference graph after the passes over operators that contain graphs.",
    ),
    "aot_saved_tensors_hooks_graphs": (
        "Graphs of hooks on saved tensors",
        "The traced graphs of hooks that pack and unpack tensors saved for the backward.",
    ),
    "compiled_autograd_graph_pre_reordering": (
        "Graph from compiled autograd before reordering",
        "The captured backward before gradient accumulations and hooks are moved to the positions of eager autograd.",
    ),
    "make_fx_fail_partial": ("Graph before a failure", "The operations that make_fx had traced when it failed."),
    "overlap_scheduling_graph_before": ("Before overlap scheduling", "The graph before collectives are moved."),
    "overlap_scheduling_graph_after": (
        "After overlap scheduling",
        "The graph after collectives were moved to overlap with computation.",
    ),
    "pre_decomp_comms": ("Before collectives are decomposed", "The graph before its collectives are decomposed."),
    "post_decomp_comms": ("After collectives are decomposed", "The graph after its collectives were decomposed."),
    "min_cut_failed_fx_graph": (
        "Graph that could not be partitioned",
        "The joint graph that the partitioner could not separate into forward and backward.",
    ),
} | {
    f"{when}_activation_quantization_{part}_aten_pass": (
        f"{when.capitalize()} activation quantisation, {name}",
        f"The {name} graph {when} saved activations are stored in a smaller dtype.",
    )
    for when in ("before", "after")
    for part, name in (("fwd", "forward"), ("bwd", "backward"))
}

_SOURCES: Mapping[str, tuple[str, str]] = {
    "inductor_autotune_at_compile_time_code": (
        "Autotuning code",
        "The program that Inductor ran during the compile to choose the fastest kernels.",
    ),
    "compiled_fn_wrapper": ("Generated wrapper", "Source of the function with which AOTAutograd wraps compiled code."),
    "runtime_wrapper_orchestration": (
        "Generated run-time wrapper",
        "Source of the code that runs around each call and handles mutated inputs, aliases and outputs that are views.",
    ),
    "aot_autograd_runtime_wrappers": (
        "Generated run-time wrappers",
        "Source of all functions that AOTAutograd puts around compiled code, one after the other.",
    ),
    "compiled_function_forward": (
        "Generated forward",
        "Source of the forward of the autograd function around compiled code.",
    ),
    "compiled_function_backward": (
        "Generated backward",
        "Source of the backward of the autograd function around compiled code.",
    ),
    "backward_prologue": (
        "Generated prologue of a backward",
        "Source of the code that prepares the inputs of a backward.",
    ),
    "backward_epilogue": (
        "Generated epilogue of a backward",
        "Source of the code that returns the outputs of a backward.",
    ),
    "subclass_wrapper": (
        "Generated wrapper of subclasses",
        "Source of the code that unwraps and rewraps tensor subclasses.",
    ),
}

_TEXTS: Mapping[str, tuple[str, str]] = {
    "aot_forward_graph_fw_subclass_metadata": (
        "Metadata of tensor subclasses",
        "How inputs and outputs that are tensor subclasses are unwrapped and rewrapped.",
    ),
    "aot_joint_graph_sync_decision_cross_ranks": (
        "Saved values agreed on by all ranks",
        "Ranks that chose to save different values for the backward use the choice of one rank.",
    ),
    "compiler_collective": (
        "Data exchanged between ranks",
        "What this rank knew about its inputs when the ranks compared them.",
    ),
    "inductor_fx_passes_overlap_bucketing": (
        "Buckets for overlap",
        "The collectives that were combined into buckets, and the reasons.",
    ),
    "inductor_overlap_cyclic_extra_deps": (
        "Cycle among dependencies",
        "Dependencies that overlap scheduling added would form a cycle.",
    ),
    "inductor_spmd_graph_mismatch": (
        "Ranks with different graphs",
        "Ranks of one program have different graphs, so collectives may hang or corrupt data.",
    ),
    "reorder_communication_preserving_peak_memory": (
        "Collectives moved earlier",
        "The moves of the pass that starts collectives earlier within the peak memory limit.",
    ),
    "sink_waits_iterative_info": ("Waits moved later", "The moves of the pass that waits for collectives later."),
    "scheduler_nodes_before_comm_overlap": (
        "Scheduler nodes before overlap",
        "Nodes in their order before collectives are moved.",
    ),
    "min_cut_failed_edge_list": (
        "Edges of a failed partitioning",
        "The flow graph for which no minimum cut was found.",
    ),
    "pre_bucketing_fsdp_collectives": (
        "Counts of FSDP collectives",
        "The number of collectives before and after they were combined.",
    ),
    "compile_worker_sidecar_death": (
        "The process of the compile workers died",
        "Compiles that waited for it failed. TORCHINDUCTOR_COMPILE_THREADS=1 disables the worker processes.",
    ),
}

_COMMAS: Mapping[str, tuple[str, str]] = {
    "fx_compute_nodes_runtime_estimation": ("Estimated times of nodes", "The estimated time of each node."),
    "fx_collectives_node_runtime_estimation": (
        "Estimated times of collectives",
        "The estimated time of each collective.",
    ),
    "fx_collectives_analytical_estimation": (
        "Calculated times of collectives",
        "The time of each collective, calculated from its size.",
    ),
}

_JSON: Mapping[str, tuple[str, str]] = {
    "min_cut_information": (
        "Saved and recomputed values",
        "The partitioner's decisions to save or recompute each value for the backward.",
    ),
    "invoke_subgraph_backward_duplicate": (
        "Another backward of a region",
        "A nested region was compiled again for gradients with different strides.",
    ),
    "fx_net_acc_splitter_finder_events": (
        "Events of the splitter",
        "The nodes that the splitter moved, and the reasons.",
    ),
    "pge_profile_vs_analytical": (
        "Profile against estimate",
        "Measured times of operators from a profile, and their calculated times.",
    ),
    "pre_bucketing_collective_sizes": ("Sizes of collectives", "Sizes of collectives before they are combined."),
    "pre_bucketing_collective_sizes_after": (
        "Sizes of buckets",
        "Sizes of the buckets into which collectives were combined.",
    ),
    "memoizer_artifacts": ("Entries of a memoizer", "Cached autotuning choices."),
    "inductor_runtime_estimations": ("Estimated times", "The estimated time of each operator."),
    "native_dsl_compile": (
        "Compile of an operator of PyTorch",
        "PyTorch compiled one of its own operators that is written in a language for kernels, or found it in a cache.",
    ),
    "compile_worker_status": (
        "Jobs of the compile workers",
        "Jobs that were still running in Inductor's worker processes when their watchdog looked.",
    ),
}

_KEYLESS: Mapping[str, tuple[str, str]] = {
    "aotautograd_cache_pickle_failure": (
        "AOTAutograd cache: no key could be computed",
        "A part of the compile cannot be pickled, so no cache key could be computed.",
    ),
    "dynamo_cache_bypass": (
        "Precompile cache bypassed",
        "The code that Dynamo compiled could not be added to a package.",
    ),
    "dynamo_cache_entries": ("Precompile cache: entries", "The content of Dynamo's package of compiled code."),
    "dynamo_cache_exception": ("Precompile cache failed", "Saving or loading compiled code raised an error."),
    "precompile_cache_bypass": ("Precompile cache bypassed", "This compile could not be added to a package."),
}

_STATE_OF_CODE = (
    "The input profile of profile-guided optimization. Sizes that varied in earlier runs are compiled as dynamic"
)

ARTIFACTS: Mapping[str, RecordKind] = {
    "before_joint_graph": RecordKind(
        "Before joint passes",
        "The graph before Inductor's passes over the joint graph.",
        "code_views.graph",
        of_compile=True,
        stage="joint",
        variant="before the passes",
    ),
    "after_joint_graph": RecordKind(
        "After joint passes",
        "The graph after Inductor's passes over the joint graph.",
        "code_views.graph",
        of_compile=True,
        stage="joint",
        variant="after the passes",
    ),
    "before_post_grad_graph": RecordKind(
        "Before post-grad passes",
        "The graph of ATen operators before Inductor's post-grad passes.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="before the passes",
        inductor_run="begins",
    ),
    "after_post_grad_graph": RecordKind(
        "After post-grad passes",
        "The graph after Inductor's post-grad passes.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="after the passes",
        inductor_run="begins",
    ),
    "inductor_post_grad_graph": RecordKind(
        "Post-grad graph",
        "The graph after Inductor's post-grad passes. Inductor generates kernels from this graph.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="after the passes",
        inductor_run="begins",
    ),
    "fx_graph_runnable": RecordKind(
        "Runnable graph",
        "A Python program that compiles and runs only this graph, for a bug report or a bisection.",
        "code_views.python",
        of_compile=True,
        inductor_run="begins",
    ),
    "aot_forward_graph_fw_metadata": RecordKind(
        "Metadata of views and mutations",
        "AOTAutograd's analysis of inputs and outputs: mutations and aliases.",
        "inductor_views.code_or_prose",
        of_compile=True,
    ),
    "before_pre_grad_graph": RecordKind(
        "Before pre-grad passes",
        "Dynamo's graph before Inductor's pre-grad passes.",
        "code_views.pre_grad_graph",
        of_compile=True,
        stage="pre_grad",
        variant="before the passes",
    ),
    "after_pre_grad_graph": RecordKind(
        "After pre-grad passes",
        "Dynamo's graph after Inductor's pre-grad passes.",
        "code_views.pre_grad_graph",
        of_compile=True,
        stage="pre_grad",
        variant="after the passes",
    ),
    **_kinds("code_views.graph", _GRAPHS),
    **_kinds("code_views.python", _SOURCES),
    **_kinds("inductor_views.code_or_prose", _TEXTS),
    **_kinds("inductor_views.comma_table", _COMMAS),
    **_kinds("json_views.read_json", _JSON),
    **_kinds("cache_views.keyless", _KEYLESS),
    **{
        f"{cache}_{state}": RecordKind(
            f"{title}: {said}", says, "cache_views.lookup", of_compile=state in ("hit", "miss", "bypass")
        )
        for cache, (title, says) in _CACHES.items()
        for state, said in _STATES.items()
    },
    "fx_graph_bundled_cache_hit": RecordKind(
        "FX graph cache: hit in a bundle",
        "The compiled graph was part of the entry in the AOTAutograd cache.",
        "cache_views.lookup",
    ),
    "torch_version": RecordKind(
        "PyTorch version", "The version of PyTorch that wrote this log.", "cache_views.torch_version"
    ),
    "torch._functorch.config": RecordKind(
        "AOTAutograd settings", "Values of torch._functorch.config at this compile.", "inductor_views.config"
    ),
    "recompile_reasons": RecordKind(
        "Reasons for recompilation",
        "The frame had compiled code, but a guard failed. After too many recompiles the frame runs uncompiled.",
        "dynamo_views.recompile",
    ),
    "dynamo_graph_break_reason": RecordKind(
        "Graph break",
        "Dynamo cannot trace an operation, so the graph ends here. Another graph may start after it.",
        "dynamo_views.graph_break",
    ),
    "dynamo_error": RecordKind(
        "Compile failed", "The compile of this frame ended with an error.", "dynamo_views.error"
    ),
    "eager_compile_backwards_failure": RecordKind(
        "Compile of a backward failed",
        "The backward could not be compiled together with the forward. It is compiled again when it is needed.",
        "dynamo_views.error",
    ),
    "dynamo_side_effects": RecordKind(
        "Side effects",
        "The traced function changes outside objects. The compiled code makes these changes after the graph has run.",
        "dynamo_views.side_effects",
    ),
    "compiled_autograd_compile_reasons": RecordKind(
        "Reasons for capturing the backward again",
        "The differences in this backward that compiled autograd had not captured before.",
        "dynamo_views.compile_reasons",
    ),
    "fx_interpreter_error": RecordKind(
        "Error during a graph run", "An operation of the graph raised an error.", "code_views.graph_after_text"
    ),
    "min_cut_failed_svg": RecordKind(
        "Drawing of a graph that could not be partitioned",
        "An SVG of the joint graph; download it to look at it.",
        "code_views.plain",
    ),
    "triton_kernel_info": RecordKind(
        "Triton kernels",
        "The compile and autotuning time of each Triton kernel.",
        "inductor_views.kernels",
        of_compile=True,
    ),
    "graph_execution": RecordKind(
        "Order of graphs at run time",
        "The compiled graphs in the order in which they ran.",
        "inductor_views.execution",
    ),
    "inductor_collective_schedule": RecordKind(
        "Order of collectives",
        "The collectives in the order of the generated code. Ranks with different orders wait for each other forever.",
        "inductor_views.schedule",
    ),
    "inductor_runtime_and_tensor_meta": RecordKind(
        "Estimated times and outputs",
        "The estimated time and the outputs of each scheduler node.",
        "inductor_views.runtime_meta",
    ),
    "inductor_provenance_tracking_node_mappings": RecordKind(
        "Origin of generated code",
        "Pre-grad nodes, post-grad nodes and kernels, and the mapping between them.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_post_to_pre_grad_nodes": RecordKind(
        "From post-grad to pre-grad nodes",
        "Post-grad nodes and the pre-grad nodes from which they were derived.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_triton_kernel_to_post_grad_nodes": RecordKind(
        "From kernels to post-grad nodes",
        "Kernels and the post-grad nodes that they compute.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_provenance_tracking_kernel_stack_traces": RecordKind(
        "From kernels to lines of the program",
        "The program lines that each kernel computes.",
        "inductor_views.kernel_stacks",
        of_compile=True,
        inductor_run="within",
    ),
    "fx_bucketing_passes_all_gather_buckets": RecordKind(
        "All-gather buckets", "All-gathers that were combined.", "inductor_views.buckets"
    ),
    "fx_bucketing_passes_reduce_scatter_buckets": RecordKind(
        "Reduce-scatter buckets", "Reduce-scatters that were combined.", "inductor_views.buckets"
    ),
    **_kinds(
        "dynamo_views.code_state",
        {f"put_{place}_code_state": ("Input profile saved", f"{_STATE_OF_CODE}.") for place in ("local", "remote")}
        | {
            f"get_{place}_code_state": ("Input profile read", f"{_STATE_OF_CODE}.")
            for place in ("local", "remote", "merged", "extra_remote")
        },
    ),
}
