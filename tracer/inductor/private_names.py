"""Lists the versions of torch that can be recorded, and every private name of torch that the recorder uses.

A test resolves each name in the installed torch, so that a new version shows at once what has changed.
"""

from __future__ import annotations

from typing import NamedTuple

OLDEST = (2, 9)
"""Oldest version of torch that can be recorded."""
NEWEST_TESTED = (2, 15)
"""Newest version of torch that the tests were run with."""
RECORDING = "recording at all"
"""Value of `needed_for` for names without which nothing can be recorded."""


class PrivateName(NamedTuple):
    name: str
    """Dotted name, starting with ``torch``."""
    needed_for: str
    """The information that is not recorded if the name is missing."""
    attributes: tuple[str, ...] = ()
    """Attributes that are used of the class's instances, or of the value."""
    since: str = "2.11"
    """Oldest version in which the name was found."""
    until: str | None = None
    """Newest version that has the name; None if the newest version that was examined has it."""


_ESTIMATE = "the scheduler's estimate of memory"
_RECOMPUTE = "the check of memory figures while Inductor reorders"
_CHECKS = "Inductor's own checks of lifetimes"
_LINES = "lines of model source"
_BETWEEN = "the comparison of the layers of a compile"
_EAGER = "the comparison with eager mode"
_JUDGE = "verdicts on launches"
_DATA = "waits for data"
_FROZEN = "frozen weights that change"
_AUTOTUNING = "what the autotuner measured"
_CLEARED = "gradients that are cleared before they are used"
_PROFILE = "operators of profiled steps"
_CALLED = "whether a program without compiles has called torch.compile"
_HOOKS = "hooks that change after the compile"
_AVERAGING = "gradients that DistributedDataParallel does not average"
_LOSSES = "losses outside of compiled code"
_SEEDS = "seeds that are set in each step"
_CLIPPING = "gradients that are clipped too late or while they are scaled"

PRIVATE_NAMES = (
    PrivateName("torch._inductor.codecache.PyCodeCache", RECORDING, ("load_by_key_path", "modules", "linemaps")),
    PrivateName("torch._inductor.codecache.AotCodeCompiler", "what launches of packages compute", ("compile",)),
    PrivateName("torch._inductor.debug.set_kernel_post_grad_provenance_tracing", _LINES),
    PrivateName("torch._inductor.debug._inductor_triton_kernel_to_post_grad_node_info", _LINES),
    PrivateName("torch._ops.OpOverload", RECORDING, ("overloadpacket",)),
    PrivateName("torch._ops.HigherOrderOperator", RECORDING),
    PrivateName("torch._ops.OpOverloadPacket", _JUDGE, ("overloads",)),
    PrivateName(
        "torch._inductor.graph.GraphLowering", _JUDGE, ("run", "run_node", "buffers", "operations", "qualify_name")
    ),
    PrivateName("torch._inductor.scheduler.Scheduler", _JUDGE, ("mutation_real_name",)),
    PrivateName("torch._inductor.ir.IRNode", _JUDGE),
    PrivateName("torch._inductor.ir.ConcatKernel", _JUDGE),
    PrivateName("torch._inductor.ir.ExternKernel", _JUDGE),
    PrivateName("torch._inductor.ir.MutationLayoutSHOULDREMOVE", _JUDGE, ("real_layout",)),
    PrivateName("torch._inductor.ir.as_storage_and_layout", _JUDGE),
    PrivateName("torch._inductor.ir.is_storage_and_layout", _JUDGE),
    PrivateName("torch._inductor.config.trace", _LINES, ("provenance_tracking_level",)),
    PrivateName("torch._inductor.codegen.wrapper.PythonWrapperCodegen", RECORDING, ("writeline",)),
    PrivateName(
        "torch._inductor.codegen.wrapper.PythonWrapperCodegen", _CHECKS, ("write_header", "imports"), since="2.13"
    ),
    PrivateName("torch._inductor.codegen.cpp", _LINES),
    PrivateName("torch._inductor.codegen.triton", _LINES),
    PrivateName("torch._dynamo.eval_frame", _CALLED, ("cached_backends",)),
    PrivateName("torch._inductor.package", _CALLED),
    PrivateName("torch.nn.utils.clip_grad", _CLIPPING, ("_clip_grads_with_norm_",)),
    PrivateName("torch.amp.grad_scaler.GradScaler", _CLIPPING, ("_unscale_grads_",)),
    PrivateName("torch.cuda.random", _SEEDS, ("_lazy_call",)),
    PrivateName(
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        _DATA,
        ("__next__", "_num_workers", "_num_yielded", "_persistent_workers", "_index_sampler"),
    ),
    PrivateName("torch.utils.data.DataLoader", _DATA, ("_index_sampler",)),
    PrivateName("torch._inductor.select_algorithm.AlgorithmSelectorCache", _AUTOTUNING, ("__call__", "benchmark")),
    PrivateName("torch._inductor.ir.ChoiceCaller", _AUTOTUNING, ("info_dict",)),
    PrivateName("torch.autograd.profiler", _PROFILE, ("_is_profiler_enabled",)),
    PrivateName("torch._functorch.config", RECORDING),
    PrivateName("torch._dynamo.config", RECORDING),
    PrivateName(
        "torch._inductor.scheduler.Scheduler", RECORDING, ("codegen", "nodes", "name_to_buf", "name_to_fused_node")
    ),
    PrivateName("torch._inductor.memory.prepare_planning_info", _ESTIMATE),
    PrivateName("torch._inductor.memory.estimate_peak_memory_allocfree", _ESTIMATE),
    PrivateName("torch._inductor.memory.compute_memory_timeline", _ESTIMATE),
    PrivateName("torch._inductor.virtualized.V", RECORDING, ("graph",)),
    PrivateName(
        "torch._inductor.graph.GraphLowering",
        RECORDING,
        ("graph_inputs", "constants", "removed_buffers", "inplaced_to_remove", "sizevars"),
    ),
    PrivateName("torch._inductor.ir.MemoryCheckKernel", _CHECKS, since="2.13"),
    PrivateName("torch._inductor.comms.config_comms", _RECOMPUTE),
    PrivateName("torch._inductor.comms_debug._debug_iterative_memory_recompute", _RECOMPUTE),
    PrivateName("torch._inductor.config_comms.reorder_iterative_debug_memory_recompute", _RECOMPUTE),
    PrivateName("torch._inductor.runtime.cache_dir_utils.cache_dir", RECORDING),
    PrivateName("torch._inductor.config.triton", RECORDING, ("cudagraphs",)),
    PrivateName("torch._inductor.config.test_configs", _CHECKS, ("track_memory_lifecycle",), since="2.13"),
    PrivateName("torch._inductor.config.aot_inductor", RECORDING, ("debug_intermediate_value_printer",)),
    PrivateName("torch._inductor.runtime.debug_utils.check_memory_step", _CHECKS, since="2.13"),
    PrivateName("torch._inductor.runtime.debug_utils.get_mem_tracker", _CHECKS, since="2.13"),
    PrivateName("torch._inductor.runtime.debug_utils.track_tensor", _CHECKS, since="2.13"),
    PrivateName("torch._inductor.runtime.debug_utils.tracked_empty_strided", _CHECKS, since="2.13"),
    PrivateName("torch.utils._config_module.ConfigModule", RECORDING, ("_config", "_is_default")),
    PrivateName("torch._guards.CompileContext", RECORDING, ("current_compile_id",)),
    PrivateName("torch._logging.structured.INTERN_TABLE", RECORDING),
    PrivateName("torch._inductor.compile_fx._compile_fx_inner", "the reasons why compiles without an id failed"),
    PrivateName("torch.cuda._sleep", "times of a CUDA device"),
    PrivateName("torch.utils._python_dispatch._disable_current_modes", RECORDING),
    PrivateName("torch._C._len_torch_dispatch_stack", RECORDING),
    PrivateName("torch._ops._len_torch_dispatch_stack_pre_dispatch", RECORDING),
    PrivateName("torch._C.DisableTorchFunction", RECORDING),
    PrivateName("torch._C._DisableTorchDispatch", RECORDING),
    PrivateName("torch._C._is_torch_function_mode_enabled", RECORDING),
    PrivateName("torch._C._functorch.is_functorch_wrapped_tensor", RECORDING),
    PrivateName("torch._is_functional_tensor", RECORDING),
    PrivateName("torch._subclasses.fake_tensor.FakeTensor", RECORDING),
    PrivateName("torch._inductor.cpp_builder.CppBuilder", RECORDING),
    PrivateName("torch._inductor.cpp_builder.CppTorchOptions", RECORDING),
    PrivateName("torch._inductor.utils.get_dtype_size", RECORDING),
    PrivateName("torch.utils._ordered_set.OrderedSet", RECORDING),
    PrivateName("torch._inductor.freezing.freeze", _FROZEN),
    PrivateName("torch._compile._disable_dynamo", _CLEARED),
    PrivateName("torch.autograd", _LOSSES, ("_engine_run_backward",)),
    PrivateName("torch.autograd.graph.Node", _LOSSES, ("_input_metadata",)),
    PrivateName("torch._guards.TracingContext", _FROZEN, ("try_get", "params_flat_unwrap_subclasses")),
    PrivateName("torch.nn.parallel.DistributedDataParallel", "replicated parameters", ("_comm_hooks",)),
    PrivateName(
        "torch.nn.parallel.DistributedDataParallel",
        _AVERAGING,
        ("_lazy_init_ran", "_use_python_reducer", "_delay_all_reduce_all_params"),
    ),
    PrivateName("torch.Tensor", "hooks that pile up", ("_backward_hooks", "_post_accumulate_grad_hooks")),
    PrivateName("torch.distributed.tensor.DTensor", "distributed parameters that become NaN", ("_local_tensor",)),
    PrivateName("torch.distributed.distributed_c10d._world", _AVERAGING, ("pg_map",)),
    PrivateName("torch.distributed.ProcessGroup", _AVERAGING, ("_get_sequence_number_for_group",)),
    PrivateName("torch._dynamo.symbolic_convert.InstructionTranslator", _HOOKS, ("current_tx",)),
    PrivateName("torch._dynamo.side_effects.SideEffects", _HOOKS, ("keepalive",)),
    PrivateName("torch._dynamo.output_graph.OutputGraph", "graphs of backends other than Inductor"),
    PrivateName("torch.fx._lazy_graph_module._LazyGraphModule", "graphs of backends other than Inductor"),
    PrivateName("torch._C._cuda_getCurrentRawStream", "the marks of a CUDA device in the launch ring"),
    PrivateName("torch._C._cuda_isCurrentStreamCapturing", "fast queries about the capture of CUDA graphs"),
    PrivateName("torch.utils._python_dispatch.TorchDispatchMode", _EAGER),
    PrivateName("torch._decomp.decomposition_table", _EAGER),
    PrivateName("torch.utils._pytree.tree_map", _EAGER),
    PrivateName("torch._inductor.compile_fx.fx_codegen_and_compile", _BETWEEN),
    PrivateName("torch._inductor.compile_fx._recursive_joint_graph_passes", _BETWEEN),
    PrivateName("torch._inductor.compile_fx._recursive_post_grad_passes", _BETWEEN),
    PrivateName("torch._inductor.compile", _BETWEEN),
    PrivateName("torch._inductor.output_code.CompiledFxGraph", _BETWEEN),
    PrivateName("torch._dynamo.compiled_autograd.compiled_autograd_enabled", _EAGER),
    PrivateName("torch._inductor.config.fallback_random", _EAGER),
    PrivateName("torch._C._current_graph_task_id", "which forward calls recompute activations"),
    PrivateName("torch.Tensor._use_count", "which inputs are expected to be freed", since="2.13"),
    PrivateName("torch._C._storage_Use_Count", "which inputs are expected to be freed", since="2.13"),
)

# The records of the logger `torch.__trace` have `metadata` and `payload` (2.11, 2.13, 2.14). The attributes
# `_raw_saved_*` of autograd's nodes, and their `data` and `unpack_hook`, are defined in C++ (2.13); without them no
# saved tensor is found. AOTAutograd sets `_tensors_no_vc_check` on the nodes of compiled graphs (2.13).


def unsupported_version(version: str) -> str | None:
    """Return why torch `version` cannot be recorded, or None if it can."""
    number = _number(version)
    if number is None or number >= OLDEST:
        return None
    return f"torch {version} is older than {_text(OLDEST)}, the oldest version that stepscope records"


def untested_version(version: str) -> str | None:
    """Return a sentence if torch `version` is newer than the newest one that was tested, or None."""
    number = _number(version)
    if number is None or number <= NEWEST_TESTED:
        return None
    return (
        f"torch {version} is newer than {_text(NEWEST_TESTED)}, the newest version that stepscope was tested with;"
        " what cannot be recorded is reported"
    )


def _number(version: str) -> tuple[int, int] | None:
    parts = version.split("+")[0].split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return None


def _text(number: tuple[int, int]) -> str:
    return f"{number[0]}.{number[1]}"
