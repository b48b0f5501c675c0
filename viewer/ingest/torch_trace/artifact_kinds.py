"""The artifacts that PyTorch 2.6 to 2.13, in part 2.15, and vLLM log, each with title, view, stage and compile."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.ingest.torch_trace.record_kind import RecordKind


def _kinds(view: str, titles: Mapping[str, tuple[str, str]]) -> dict[str, RecordKind]:
    return {name: RecordKind(title, says, view) for name, (title, says) in titles.items()}


_CACHES = {
    "fx_graph_cache": ("FX graph cache", "Inductor looks its graph up in the cache of compiled graphs."),
    "aotautograd_cache": ("AOTAutograd cache", "AOTAutograd looks up a whole compile: forward, backward and metadata."),
}
_STATES = {"hit": "hit", "miss": "miss", "bypass": "bypassed", "saved": "saved", "hash": "key"}

_GRAPHS: Mapping[str, tuple[str, str]] = {
    "aot_inference_graph_after_hop_passes": (
        "Inference graph after passes over operators of higher order",
        "The inference graph once operators that hold graphs have been worked on.",
    ),
    "aot_saved_tensors_hooks_graphs": (
        "Graphs of hooks on saved tensors",
        "Hooks that pack and unpack what is saved for the backward, traced into graphs.",
    ),
    "compiled_autograd_graph_pre_reordering": (
        "Graph from compiled autograd, in its first order",
        "The captured backward before accumulations and hooks are moved to where eager autograd runs them.",
    ),
    "make_fx_fail_partial": ("Graph up to a failure", "What make_fx had traced when it failed."),
    "overlap_scheduling_graph_before": ("Before overlap scheduling", "The graph before collectives are moved."),
    "overlap_scheduling_graph_after": (
        "After overlap scheduling",
        "The graph after collectives were moved so that computation hides them.",
    ),
    "pre_decomp_comms": ("Before collectives are decomposed", "The graph before its collectives are decomposed."),
    "post_decomp_comms": ("After collectives are decomposed", "The graph after its collectives were decomposed."),
    "min_cut_failed_fx_graph": (
        "Graph whose cut failed",
        "The joint graph that could not be cut into forward and backward.",
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
        "Code of autotuning",
        "The program that Inductor ran while compiling to choose among kernels.",
    ),
    "compiled_fn_wrapper": ("Generated wrapper", "Source of the function that AOTAutograd puts around compiled code."),
    "runtime_wrapper_orchestration": (
        "Generated run-time wrapper",
        "Source of what runs around each call: inputs that are changed or aliased, outputs that are views.",
    ),
    "compiled_function_forward": (
        "Generated forward",
        "Source of the forward of the autograd function around compiled code.",
    ),
    "compiled_function_backward": (
        "Generated backward",
        "Source of the backward of the autograd function around compiled code.",
    ),
    "backward_prologue": ("Generated begin of a backward", "Source of what makes ready the inputs of a backward."),
    "backward_epilogue": ("Generated end of a backward", "Source of what hands on the outputs of a backward."),
    "subclass_wrapper": ("Generated wrapper of subclasses", "Source of what takes tensor subclasses apart and back."),
}

_TEXTS: Mapping[str, tuple[str, str]] = {
    "aot_forward_graph_fw_subclass_metadata": (
        "Metadata of tensor subclasses",
        "How inputs and outputs that are tensor subclasses are taken apart and put together again.",
    ),
    "aot_joint_graph_sync_decision_cross_ranks": (
        "Saved values agreed on by all ranks",
        "Ranks that chose to save different values for the backward take the choice of one.",
    ),
    "compiler_collective": ("What ranks told each other", "What this rank knew of its inputs when ranks compared."),
    "inductor_fx_passes_overlap_bucketing": (
        "Buckets for overlap",
        "Which collectives were put together into buckets, and why.",
    ),
    "inductor_overlap_cyclic_extra_deps": (
        "Cycle among dependencies",
        "Dependencies that overlap scheduling added would form a cycle.",
    ),
    "inductor_spmd_graph_mismatch": (
        "Ranks with different graphs",
        "Ranks that should run one program have different graphs: collectives may hang or mix up data.",
    ),
    "reorder_communication_preserving_peak_memory": (
        "Collectives moved earlier",
        "What the pass that starts collectives earlier did to each, within the peak of memory.",
    ),
    "sink_waits_iterative_info": ("Waits moved later", "What the pass that awaits collectives later did to each."),
    "scheduler_nodes_before_comm_overlap": (
        "Scheduler nodes before overlap",
        "Nodes in their order before collectives are moved.",
    ),
    "min_cut_failed_edge_list": ("Edges of a cut that failed", "The flow graph that could not be cut."),
    "pre_bucketing_fsdp_collectives": (
        "Collectives of FSDP, in numbers",
        "How many were put together, and into how many.",
    ),
    "compile_worker_sidecar_death": (
        "The process of the compile workers died",
        "Compiles that waited for it failed; TORCHINDUCTOR_COMPILE_THREADS=1 has PyTorch compile without it.",
    ),
}

_COMMAS: Mapping[str, tuple[str, str]] = {
    "fx_compute_nodes_runtime_estimation": ("Estimated times of nodes", "How long each node should take."),
    "fx_collectives_node_runtime_estimation": (
        "Estimated times of collectives",
        "How long each collective should take.",
    ),
    "fx_collectives_analytical_estimation": (
        "Calculated times of collectives",
        "How long each collective should take by its size.",
    ),
}

_JSON: Mapping[str, tuple[str, str]] = {
    "min_cut_information": (
        "What is saved and what is computed again",
        "How the partitioner chose between memory and work for the backward.",
    ),
    "invoke_subgraph_backward_duplicate": (
        "Another backward of a region",
        "A nested region was compiled again for gradients of other strides.",
    ),
    "fx_net_acc_splitter_finder_events": ("Events of the splitter", "Which nodes the splitter moved, and why."),
    "pge_profile_vs_analytical": (
        "Profile against estimate",
        "Times of operators in a profile beside those that were calculated.",
    ),
    "pre_bucketing_collective_sizes": ("Sizes of collectives", "Sizes before collectives are put together."),
    "pre_bucketing_collective_sizes_after": ("Sizes of buckets", "Sizes after collectives were put together."),
    "memoizer_artifacts": ("Entries of a memoizer", "What the caching of choices of autotuning held."),
    "inductor_runtime_estimations": ("Estimated times", "How long each operator should take."),
    "compile_worker_status": (
        "Jobs of the compile workers",
        "Jobs that were still running in Inductor's worker processes when their watchdog looked.",
    ),
}

_KEYLESS: Mapping[str, tuple[str, str]] = {
    "aotautograd_cache_pickle_failure": (
        "AOTAutograd cache: key could not be made",
        "Something in the compile cannot be pickled, so that no key can be made of it.",
    ),
    "dynamo_cache_bypass": ("Precompile cache bypassed", "What Dynamo compiled could not be put into a package."),
    "dynamo_cache_entries": ("Precompile cache: entries", "What Dynamo's package of compiled code holds."),
    "dynamo_cache_exception": ("Precompile cache failed", "Saving or loading compiled code raised an error."),
    "precompile_cache_bypass": ("Precompile cache bypassed", "This compile could not be put into a package."),
}

_STATE_OF_CODE = (
    "What profile-guided optimisation knows of inputs: those that were seen to vary are compiled as dynamic"
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
        "The graph of ATen operators before Inductor's last passes.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="before the passes",
        inductor_run="begins",
    ),
    "after_post_grad_graph": RecordKind(
        "After post-grad passes",
        "The graph after Inductor's last passes.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="after the passes",
        inductor_run="begins",
    ),
    "inductor_post_grad_graph": RecordKind(
        "Graph after grad passes",
        "The graph after Inductor's last passes over it: kernels are made from this one.",
        "code_views.graph",
        of_compile=True,
        stage="post_grad",
        variant="after the passes",
        inductor_run="begins",
    ),
    "fx_graph_runnable": RecordKind(
        "Runnable graph",
        "A Python program that compiles and runs this graph alone: for a bug report or a bisection.",
        "code_views.python",
        of_compile=True,
        inductor_run="begins",
    ),
    "aot_forward_graph_fw_metadata": RecordKind(
        "Metadata of views and mutations",
        "What AOTAutograd found out of inputs and outputs: which are changed, which alias others.",
        "inductor_views.code_or_prose",
        of_compile=True,
    ),
    "before_pre_grad_graph": RecordKind(
        "Before pre-grad passes",
        "Dynamo's graph before Inductor's first passes.",
        "code_views.pre_grad_graph",
        of_compile=True,
        stage="pre_grad",
        variant="before the passes",
    ),
    "after_pre_grad_graph": RecordKind(
        "After pre-grad passes",
        "Dynamo's graph after Inductor's first passes.",
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
        "The compiled graph came with the entry of the AOTAutograd cache.",
        "cache_views.lookup",
    ),
    "torch_version": RecordKind("Version of PyTorch", "Which PyTorch wrote this log.", "cache_views.torch_version"),
    "torch._functorch.config": RecordKind(
        "Settings of AOTAutograd", "Values of torch._functorch.config at this compile.", "inductor_views.config"
    ),
    "recompile_reasons": RecordKind(
        "Why it is compiled again",
        "The frame had compiled code, but a guard failed; with too many such the frame runs eagerly.",
        "dynamo_views.recompile",
    ),
    "dynamo_graph_break_reason": RecordKind(
        "Graph break",
        "Dynamo met something that it cannot trace: the graph ends here, and another may begin behind it.",
        "dynamo_views.graph_break",
    ),
    "dynamo_error": RecordKind("Compile failed", "Dynamo gave up on this frame with an error.", "dynamo_views.error"),
    "eager_compile_backwards_failure": RecordKind(
        "Compile of a backward failed",
        "The backward could not be compiled together with the forward; it is tried again when it is needed.",
        "dynamo_views.error",
    ),
    "dynamo_side_effects": RecordKind(
        "Side effects",
        "The traced function changes things outside of itself; the compiled code does so after the graph has run.",
        "dynamo_views.side_effects",
    ),
    "compiled_autograd_compile_reasons": RecordKind(
        "Why the backward is captured again",
        "What was new to compiled autograd in this backward.",
        "dynamo_views.compile_reasons",
    ),
    "fx_interpreter_error": RecordKind(
        "Error while a graph was run", "An operation of the graph raised an error.", "code_views.graph_after_text"
    ),
    "min_cut_failed_svg": RecordKind(
        "Drawing of a graph whose cut failed",
        "An SVG of the joint graph; download it to look at it.",
        "code_views.plain",
    ),
    "triton_kernel_info": RecordKind(
        "Triton kernels",
        "What each Triton kernel of this compile took to compile and tune.",
        "inductor_views.kernels",
        of_compile=True,
    ),
    "graph_execution": RecordKind(
        "Order of graphs at run time",
        "Compiled graphs in the order in which they ran; written at the end of a recording of it.",
        "inductor_views.execution",
    ),
    "inductor_collective_schedule": RecordKind(
        "Order of collectives",
        "Collectives as the generated code issues them: ranks whose orders differ wait for each other forever.",
        "inductor_views.schedule",
    ),
    "inductor_runtime_and_tensor_meta": RecordKind(
        "Estimated times and outputs",
        "What Inductor expects each scheduler node to take, and what it writes.",
        "inductor_views.runtime_meta",
    ),
    "inductor_provenance_tracking_node_mappings": RecordKind(
        "Where generated code came from",
        "Nodes before and after grad passes and kernels, each with what became of it.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_post_to_pre_grad_nodes": RecordKind(
        "From post-grad to pre-grad nodes",
        "Nodes after grad passes with those that they came from.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_triton_kernel_to_post_grad_nodes": RecordKind(
        "From kernels to post-grad nodes",
        "Kernels with the nodes that they compute.",
        "inductor_views.node_mappings",
        of_compile=True,
        inductor_run="within",
    ),
    "inductor_provenance_tracking_kernel_stack_traces": RecordKind(
        "From kernels to lines of the program",
        "The lines of the program that each kernel came from.",
        "inductor_views.kernel_stacks",
        of_compile=True,
        inductor_run="within",
    ),
    "fx_bucketing_passes_all_gather_buckets": RecordKind(
        "Buckets of all-gathers", "All-gathers that are done as one.", "inductor_views.buckets"
    ),
    "fx_bucketing_passes_reduce_scatter_buckets": RecordKind(
        "Buckets of reduce-scatters", "Reduce-scatters that are done as one.", "inductor_views.buckets"
    ),
    **_kinds(
        "dynamo_views.code_state",
        {
            f"put_{place}_code_state": ("Profile of inputs is saved", f"{_STATE_OF_CODE}.")
            for place in ("local", "remote")
        }
        | {
            f"get_{place}_code_state": ("Profile of inputs is read", f"{_STATE_OF_CODE}.")
            for place in ("local", "remote", "merged", "extra_remote")
        },
    ),
}
