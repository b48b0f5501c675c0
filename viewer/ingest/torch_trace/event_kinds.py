"""The events that PyTorch 2.6 to 2.13 log, each with title, view, stage and compile."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.viewer.ingest.torch_trace.record_kind import RecordKind

_EXPRESSIONS = ("expression_created", "create_unbacked_symbol")
_DESCRIBED = ("describe_tensor", "describe_storage", "describe_source")
_METRICS = "What PyTorch measured of one compile: times, counts, failures, caches and settings"

EVENTS: Mapping[str, RecordKind] = {
    "dynamo_start": RecordKind(
        "Compile begins",
        "Dynamo begins to compile a frame; the stack says who called it. Each attempt begins anew with such a record.",
        "dynamo_views.start",
    ),
    "str": RecordKind(
        "Entry of the string table",
        "File names of stacks are logged once, under a number; stacks then name the number.",
        "dynamo_views.string",
    ),
    "link": RecordKind(
        "Link", "PyTorch points to a page that was made of this compile elsewhere.", "dynamo_views.link"
    ),
    "dump_file": RecordKind(
        "File of generated Python",
        "Source of a file that exists only in the process, so that stacks through it can be read.",
        "code_views.dump_file",
    ),
    "dynamo_output_graph": RecordKind(
        "Graph from Dynamo",
        "The operations that Dynamo saw while it traced the Python function: what the backend was given to compile.",
        "code_views.output_graph",
        stage="dynamo",
        ranks_compare=True,
    ),
    "graph_dump": RecordKind(
        "Code or graph under a name",
        "AOTInductor writes its wrapper, kernels and header so; older versions wrote graphs so.",
        "code_views.graph_dump",
    ),
    "optimize_ddp_split_graph": RecordKind(
        "Graph split for DDP",
        "DDP reduces gradients in buckets, so the graph is split where a bucket is full; each part is compiled alone.",
        "code_views.graph",
        stage="dynamo",
        variant="split for DDP",
    ),
    "optimize_ddp_split_child": RecordKind(
        "Part of a graph that was split for DDP",
        "One of the parts between two buckets of gradients; it is compiled alone.",
        "code_views.ddp_child",
        stage="dynamo",
        variant="part for DDP",
    ),
    "compiled_autograd_graph": RecordKind(
        "Graph from compiled autograd",
        "The backward pass as the autograd engine would run it, captured as one graph.",
        "code_views.graph",
        stage="dynamo",
        variant="compiled autograd",
        ranks_compare=True,
    ),
    "aot_joint_graph": RecordKind(
        "Joint graph",
        "Forward and backward in one graph of ATen operators, before it is cut into the two.",
        "code_views.graph",
        of_compile=True,
        stage="joint",
    ),
    "aot_forward_graph": RecordKind(
        "Forward graph",
        "The forward part of the joint graph, with what it saves for the backward among its outputs.",
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
        "The graph of ATen operators of a compile that needs no gradients.",
        "code_views.graph",
        of_compile=True,
        stage="forward",
        variant="inference",
        ranks_compare=True,
    ),
    "inductor_input_graph": RecordKind(
        "Graph given to Inductor", "The graph as Inductor received it.", "code_views.graph"
    ),
    "inductor_pre_grad_graph": RecordKind(
        "Graph before grad passes",
        "The graph on which Inductor's passes before autograd work.",
        "code_views.graph",
        of_compile=True,
        stage="pre_grad",
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
    "inductor_output_code": RecordKind(
        "Generated code",
        "The Python or C++ that Inductor generated: kernels, and the wrapper that allocates, launches and frees.",
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
        f"{_METRICS}; here of its backward, compiled later.",
        "metric_views.metrics",
        of_compile=True,
        has_metrics=True,
    ),
    "aot_autograd_backward_compilation_metrics": RecordKind(
        "Compilation metrics of a backward",
        f"{_METRICS}; here of its backward, under the name that older versions give it.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "compilation_metrics_runtime": RecordKind(
        "Metrics at run time",
        f"{_METRICS}; here of work that was done when the code first ran.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "bwd_compilation_metrics_runtime": RecordKind(
        "Metrics of a backward at run time",
        f"{_METRICS}; here of work that was done when the backward first ran.",
        "metric_views.metrics",
        has_metrics=True,
    ),
    "chromium_event": RecordKind(
        "Event of the compile's timeline",
        "Begin, end or an instant of a phase of the compile; together they are the chart of compile time.",
        "metric_views.chromium_event",
    ),
    "create_symbol": RecordKind(
        "Symbol of a dynamic size",
        "A size, stride or number of an input was not taken as a constant: this symbol stands for it.",
        "symbol_views.symbol",
    ),
    "create_unbacked_symbol": RecordKind(
        "Symbol of a value from data",
        "A number that only the data knows (such as the result of item()): this symbol stands for it, without a value.",
        "symbol_views.unbacked_symbol",
    ),
    "symbolic_shape_specialization": RecordKind(
        "Specialisation",
        "A symbol turned out to have only one possible value: code for this size alone, compiled again for others.",
        "symbol_views.specialization",
    ),
    "guard_added": RecordKind(
        "Guard on a symbol",
        "The program decided something by this expression: the code holds only while it is true.",
        "symbol_views.guard",
        _EXPRESSIONS,
    ),
    "guard_added_fast": RecordKind(
        "Guard on a symbol",
        "The program decided something by this expression: the code holds only while it is true.",
        "symbol_views.guard_fast",
    ),
    "expression_created": RecordKind(
        "Expression of symbols",
        "A new expression was made from others; the tree shows what it was made from.",
        "symbol_views.expression",
        _EXPRESSIONS,
    ),
    "propagate_real_tensors": RecordKind(
        "Decided by a real value",
        "Draft export had to decide by a value of the example's data: the exported program may be wrong for others.",
        "symbol_views.propagated",
        _EXPRESSIONS,
    ),
    "propagate_real_tensors_provenance": RecordKind(
        "Decided by a real value",
        "Draft export had to decide by a value of the example's data: the exported program may be wrong for others.",
        "symbol_views.propagated",
        _EXPRESSIONS,
    ),
    "guard_on_data_dependent_error": RecordKind(
        "Decision by data",
        "The program decides by a value that is not known while it is traced; tracing cannot go on.",
        "symbol_views.data_dependent",
        _EXPRESSIONS,
    ),
    "missing_fake_kernel": RecordKind(
        "Operator without a fake kernel",
        "Nothing says what this custom operator returns for given shapes: register a fake kernel for it.",
        "symbol_views.fake_kernel",
    ),
    "mismatched_fake_kernel": RecordKind(
        "Fake kernel that is wrong",
        "The operator returned something else than its fake kernel said: what is compiled on its word may be wrong.",
        "symbol_views.fake_kernel",
    ),
    "export": RecordKind("Export begins", "torch.export began to trace a program.", "code_views.prose"),
    "exported_program": RecordKind(
        "Exported program", "What torch.export made: the graph, its signature and ranges of sizes.", "code_views.graph"
    ),
    "describe_tensor": RecordKind(
        "Tensor of a compile",
        "A tensor that the compile was made for, as metadata alone; fake tensors are made from it.",
        "tensor_views.tensor",
        _DESCRIBED,
    ),
    "describe_storage": RecordKind(
        "Storage of a compile",
        "Memory in which tensors of the compile lie; several in one are views of each other.",
        "tensor_views.storage",
        _DESCRIBED,
    ),
    "describe_source": RecordKind(
        "Source of a tensor",
        "Where in the program a tensor of the compile comes from: guards name it so.",
        "tensor_views.source",
        _DESCRIBED,
    ),
    "dynamo_cpp_guards_str": RecordKind(
        "Guards",
        "The checks that run before each call of the compiled code: when one fails, the code does not fit and Dynamo"
        " looks for other code or compiles again.",
        "guard_views.tree",
    ),
    "dynamo_guards": RecordKind(
        "List of guards",
        "The checks that run before each call of the compiled code, each with the stack for which it was made.",
        "guard_views.guard_list",
        names_files=True,
    ),
}

DUMPS: Mapping[str, RecordKind] = {
    "inductor_aot_wrapper_code": RecordKind(
        "Code of AOTInductor's wrapper",
        "AOTInductor writes the source of the wrapper that calls its kernels under this name.",
        "code_views.graph_dump",
        of_compile=True,
        stage="code",
        variant="AOTInductor's wrapper",
        inductor_run="code",
    ),
    "inductor_aot_kernel_code": RecordKind(
        "Code of AOTInductor's kernels",
        "AOTInductor writes the source of its kernels under this name.",
        "code_views.graph_dump",
        of_compile=True,
        stage="code",
        variant="AOTInductor's kernels",
    ),
}
"""Names of `graph_dump` records that belong to a stage of a compile."""
