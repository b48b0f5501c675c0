"""The events that PyTorch 2.6 to 2.15 log, each with title, view, stage and compile."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.ingest.torch_trace.record_kind import RecordKind

_EXPRESSIONS = ("expression_created", "create_unbacked_symbol")
DESCRIBED = ("describe_tensor", "describe_storage", "describe_source")
_METRICS = "PyTorch's measurements of one compile: times, counts, failures, caches and settings"

EVENTS: Mapping[str, RecordKind] = {
    "dynamo_start": RecordKind(
        "Start of a compile",
        "Dynamo starts to compile a frame; the stack shows the caller. Each attempt starts with such a record.",
        "dynamo_views.start",
    ),
    "str": RecordKind(
        "Entry of the string table",
        "Each file name of a stack is logged once with a number, to which stacks refer.",
        "dynamo_views.string",
    ),
    "link": RecordKind("Link", "PyTorch logged a link to a page about this compile.", "dynamo_views.link"),
    "dump_file": RecordKind(
        "File of generated Python",
        "Source of a file that exists only in the process; stacks refer to its lines.",
        "code_views.dump_file",
    ),
    "dynamo_output_graph": RecordKind(
        "Graph from Dynamo",
        "The operations that Dynamo captured from the Python function. The backend compiles this graph.",
        "code_views.output_graph",
        stage="dynamo",
        ranks_compare=True,
    ),
    "graph_dump": RecordKind(
        "Code or graph under a name",
        "AOTInductor logs its wrapper, kernels and header this way; older versions of PyTorch also log graphs.",
        "code_views.graph_dump",
    ),
    "optimize_ddp_split_graph": RecordKind(
        "Graph split for DDP",
        "DDP reduces gradients in buckets, so the graph is split where a bucket is full, and each part is compiled.",
        "code_views.graph",
        stage="dynamo",
        variant="split for DDP",
    ),
    "optimize_ddp_split_child": RecordKind(
        "Part of a graph that was split for DDP",
        "A part of the graph for one bucket of gradients. It is compiled separately.",
        "code_views.ddp_child",
        stage="dynamo",
        variant="part for DDP",
    ),
    "compiled_autograd_graph": RecordKind(
        "Graph from compiled autograd",
        "The backward pass of the autograd engine, captured as one graph.",
        "code_views.graph",
        stage="dynamo",
        variant="compiled autograd",
        ranks_compare=True,
    ),
    "aot_joint_graph": RecordKind(
        "Joint graph",
        "Forward and backward in one graph of ATen operators, before the partitioner separates them.",
        "code_views.graph",
        of_compile=True,
        stage="joint",
    ),
    "aot_forward_graph": RecordKind(
        "Forward graph",
        "The forward part of the joint graph; its outputs include the values that are saved for the backward.",
        "code_views.graph",
        of_compile=True,
        stage="forward",
        ranks_compare=True,
    ),
    "aot_backward_graph": RecordKind(
        "Backward graph",
        "The backward part of the joint graph; its inputs are saved values and tangents.",
        "code_views.graph",
        of_compile=True,
        stage="backward",
        ranks_compare=True,
    ),
    "aot_inference_graph": RecordKind(
        "Inference graph",
        "The graph of ATen operators of a compile that requires no gradients.",
        "code_views.graph",
        of_compile=True,
        stage="forward",
        variant="inference",
        ranks_compare=True,
    ),
    "inductor_input_graph": RecordKind(
        "Graph given to Inductor", "The graph that Inductor received.", "code_views.graph"
    ),
    "inductor_pre_grad_graph": RecordKind(
        "Pre-grad graph",
        "The graph before autograd, on which Inductor's pre-grad passes run.",
        "code_views.graph",
        of_compile=True,
        stage="pre_grad",
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
    "inductor_output_code": RecordKind(
        "Generated code",
        "The code that Inductor generated: kernels, and the wrapper that allocates, launches and frees.",
        "code_views.output_code",
        of_compile=True,
        stage="code",
        inductor_run="code",
    ),
    "compilation_metrics": RecordKind(
        "Compilation metrics",
        f"{_METRICS}.",
        "metric_views.metrics",
        of_compile=True,
        has_metrics=True,
    ),
    "bwd_compilation_metrics": RecordKind(
        "Compilation metrics of a backward",
        f"{_METRICS}, for a backward that was compiled later.",
        "metric_views.metrics",
        of_compile=True,
        has_metrics=True,
    ),
    "aot_autograd_backward_compilation_metrics": RecordKind(
        "Compilation metrics of a backward",
        f"{_METRICS}, for a backward; this is the name in older versions of PyTorch.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "compilation_metrics_runtime": RecordKind(
        "Metrics at run time",
        f"{_METRICS}, for work that was done when the code first ran.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "bwd_compilation_metrics_runtime": RecordKind(
        "Metrics of a backward at run time",
        f"{_METRICS}, for work that was done when the backward first ran.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "chromium_event": RecordKind(
        "Event of the compile timeline",
        "The beginning or end of a phase of the compile, or a single event. The compile-time chart shows all of them.",
        "metric_views.chromium_event",
    ),
    "create_symbol": RecordKind(
        "Symbol of a dynamic size",
        "This symbol represents a size, a stride or a number of an input that is not a constant.",
        "symbol_views.symbol",
    ),
    "create_unbacked_symbol": RecordKind(
        "Unbacked symbol",
        "This symbol represents a number that depends on data, such as the result of item(), so its value is unknown.",
        "symbol_views.unbacked_symbol",
    ),
    "symbolic_shape_specialization": RecordKind(
        "Specialisation",
        "A symbol can have only one value, so the code is valid only for this size. Other sizes cause a recompile.",
        "symbol_views.specialization",
    ),
    "guard_added": RecordKind(
        "Guard on a symbol",
        "The program branched on this expression, so the code is valid only while the expression is true.",
        "symbol_views.guard",
        _EXPRESSIONS,
    ),
    "guard_added_fast": RecordKind(
        "Guard on a symbol",
        "The program branched on this expression, so the code is valid only while the expression is true.",
        "symbol_views.guard_fast",
    ),
    "expression_created": RecordKind(
        "Expression of symbols",
        "An expression was derived from others; the tree shows its operands.",
        "symbol_views.expression",
        _EXPRESSIONS,
    ),
    "propagate_real_tensors": RecordKind(
        "Data-dependent decision",
        "Draft export used a value of the example's data, so the exported program may be wrong for other data.",
        "symbol_views.propagated",
        _EXPRESSIONS,
    ),
    "propagate_real_tensors_provenance": RecordKind(
        "Data-dependent decision",
        "Draft export used a value of the example's data, so the exported program may be wrong for other data.",
        "symbol_views.propagated",
        _EXPRESSIONS,
    ),
    "guard_on_data_dependent_error": RecordKind(
        "Data-dependent guard",
        "The program branches on a value that is unknown during tracing, so tracing cannot continue.",
        "symbol_views.data_dependent",
        _EXPRESSIONS,
    ),
    "missing_fake_kernel": RecordKind(
        "Operator without a fake kernel",
        "The output shapes of this custom operator are unknown. Register a fake kernel for it.",
        "symbol_views.fake_kernel",
    ),
    "mismatched_fake_kernel": RecordKind(
        "Wrong fake kernel",
        "The operator and its fake kernel returned different results, so code that was compiled for it may be wrong.",
        "symbol_views.fake_kernel",
    ),
    "export": RecordKind("Start of an export", "torch.export started to trace a program.", "code_views.prose"),
    "exported_program": RecordKind(
        "Exported program",
        "The result of torch.export: the graph, its signature and the ranges of its sizes.",
        "code_views.graph",
    ),
    "describe_tensor": RecordKind(
        "Tensor of a compile",
        "The metadata of an input tensor of the compile, from which fake tensors are created.",
        "tensor_views.tensor",
        DESCRIBED,
    ),
    "describe_storage": RecordKind(
        "Storage of a compile",
        "Memory of input tensors of the compile. Tensors that share a storage are views of each other.",
        "tensor_views.storage",
        DESCRIBED,
    ),
    "describe_source": RecordKind(
        "Source of a tensor",
        "The expression in the program that yields a tensor of the compile. Guards use it as the tensor's name.",
        "tensor_views.source",
        DESCRIBED,
    ),
    "dynamo_cpp_guards_str": RecordKind(
        "Guards",
        "The checks that run before each call of the compiled code. If one fails, Dynamo looks for other compiled code"
        " or compiles again.",
        "guard_views.tree",
    ),
    "dynamo_guards": RecordKind(
        "List of guards",
        "The checks that run before each call of the compiled code, each with the stack that caused it.",
        "guard_views.guard_list",
        names_files=True,
    ),
}

DUMPS: Mapping[str, RecordKind] = {
    "inductor_aot_wrapper_code": RecordKind(
        "Source of AOTInductor's wrapper",
        "The source of the wrapper that calls AOTInductor's kernels.",
        "code_views.graph_dump",
        of_compile=True,
        stage="code",
        variant="AOTInductor's wrapper",
        inductor_run="code",
    ),
    "inductor_aot_kernel_code": RecordKind(
        "Source of AOTInductor's kernels",
        "The source of AOTInductor's kernels.",
        "code_views.graph_dump",
        of_compile=True,
        stage="code",
        variant="AOTInductor's kernels",
    ),
}
"""Names of `graph_dump` records that belong to a stage of a compile."""
