"""Every private name of torch that the recorder uses, and the versions it was seen in.

A test looks each of them up in the torch that is installed, so that a new version says at once what has moved.
"""

from __future__ import annotations

from typing import NamedTuple

SEEN = ("2.11", "2.13", "2.14")
"""2.11 and 2.13 have run the tests; of 2.14 the source was read. 2.9, 2.10, 2.12 and 2.15 were not seen as a whole."""
LATER = ("2.13", "2.14")


class Private(NamedTuple):
    """One name."""

    name: str
    """Dotted, from ``torch`` on."""
    attributes: tuple[str, ...] = ()
    """What is used of its instances, or of the values that it names."""
    seen: tuple[str, ...] = SEEN
    without: str = ""
    """What is not recorded where it is missing. Empty: recording needs it."""


_ESTIMATE = "the scheduler's estimate of memory"
_RECOMPUTE = "the check of memory figures while Inductor reorders"
_CHECKS = "Inductor's own checks of lifetimes"
_LINES = "lines of model source"

PRIVATE_NAMES = (
    Private("torch._inductor.codecache.PyCodeCache", ("load_by_key_path", "modules", "linemaps")),
    Private("torch._inductor.codecache.AotCodeCompiler", ("compile",), without="what launches of packages compute"),
    Private("torch._inductor.debug.set_kernel_post_grad_provenance_tracing", without=_LINES),
    Private("torch._inductor.debug._inductor_triton_kernel_to_post_grad_node_info", without=_LINES),
    Private("torch._ops.OpOverload", ("overloadpacket",)),
    Private("torch._ops.HigherOrderOperator"),
    Private("torch._inductor.config.trace", ("provenance_tracking_level",), without=_LINES),
    Private("torch._inductor.codegen.wrapper.PythonWrapperCodegen", ("writeline",)),
    Private("torch._inductor.codegen.wrapper.PythonWrapperCodegen", ("write_header", "imports"), LATER, _CHECKS),
    Private("torch._inductor.codegen.cpp", without=_LINES),
    Private("torch._inductor.codegen.triton", without=_LINES),
    Private("torch._functorch.config"),
    Private("torch._dynamo.config"),
    Private("torch._inductor.scheduler.Scheduler", ("codegen", "nodes", "name_to_buf", "name_to_fused_node")),
    Private("torch._inductor.memory.prepare_planning_info", without=_ESTIMATE),
    Private("torch._inductor.memory.estimate_peak_memory_allocfree", without=_ESTIMATE),
    Private("torch._inductor.memory.compute_memory_timeline", without=_ESTIMATE),
    Private("torch._inductor.virtualized.V", ("graph",)),
    Private("torch._inductor.graph.GraphLowering", ("graph_inputs", "constants", "removed_buffers", "sizevars")),
    Private("torch._inductor.ir.MemoryCheckKernel", seen=LATER, without=_CHECKS),
    Private("torch._inductor.comms.config_comms", without=_RECOMPUTE),
    Private("torch._inductor.comms_debug._debug_iterative_memory_recompute", without=_RECOMPUTE),
    Private("torch._inductor.config_comms.reorder_iterative_debug_memory_recompute", without=_RECOMPUTE),
    Private("torch._inductor.runtime.cache_dir_utils.cache_dir"),
    Private("torch._inductor.config.triton", ("cudagraphs",)),
    Private("torch._inductor.config.test_configs", ("track_memory_lifecycle",), LATER, _CHECKS),
    Private("torch._inductor.config.aot_inductor", ("debug_intermediate_value_printer",)),
    Private("torch._inductor.runtime.debug_utils.check_memory_step", seen=LATER, without=_CHECKS),
    Private("torch._inductor.runtime.debug_utils.get_mem_tracker", seen=LATER, without=_CHECKS),
    Private("torch._inductor.runtime.debug_utils.track_tensor", seen=LATER, without=_CHECKS),
    Private("torch._inductor.runtime.debug_utils.tracked_empty_strided", seen=LATER, without=_CHECKS),
    Private("torch.utils._config_module.ConfigModule", ("_config", "_is_default")),
    Private("torch._guards.CompileContext", ("current_compile_id",)),
    Private("torch._logging.structured.INTERN_TABLE"),
    Private("torch._inductor.compile_fx._compile_fx_inner", without="why compiles without an id failed"),
    Private("torch.cuda._sleep", without="times of a CUDA device"),
    Private("torch.utils._python_dispatch._disable_current_modes"),
    Private("torch._C.DisableTorchFunction"),
    Private("torch._C._DisableTorchDispatch"),
    Private("torch._C._is_torch_function_mode_enabled"),
    Private("torch._C._functorch.is_functorch_wrapped_tensor"),
    Private("torch._is_functional_tensor"),
    Private("torch._subclasses.fake_tensor.FakeTensor"),
    Private("torch._inductor.cpp_builder.CppBuilder"),
    Private("torch._inductor.cpp_builder.CppTorchOptions"),
    Private("torch._inductor.utils.get_dtype_size"),
    Private("torch.utils._ordered_set.OrderedSet"),
    Private("torch._dynamo.output_graph.OutputGraph", without="graphs of backends other than Inductor"),
    Private("torch.fx._lazy_graph_module._LazyGraphModule", without="graphs of backends other than Inductor"),
    Private("torch._C._cuda_getCurrentRawStream", without="the ring's marks of a CUDA device"),
    Private("torch._C._cuda_isCurrentStreamCapturing", without="nothing: torch.cuda answers, more slowly"),
    Private("torch.Tensor._use_count", seen=LATER, without="which inputs are expected to die"),
    Private("torch._C._storage_Use_Count", seen=LATER, without="which inputs are expected to die"),
)

# Of the logger `torch.__trace` the records have `metadata` and `payload` (2.11, 2.13, 2.14). `_raw_saved_*` of nodes of
# autograd, their `data` and `unpack_hook` are made in C++ (2.13); without them nothing that is saved is found.
