"""Names and texts that recorder and viewer agree on."""

FORMAT_VERSION = 2
CACHED_ESTIMATE = "estimated memory of a cached graph"
"""`Skipped.what` of a graph from a cache that was compiled without stepscope; it is not reported as a problem."""
DEVICE_FAILED = "the device had failed"
"""Beginning of `Skipped.why` if a device had failed; the failure has a finding of its own."""
SAVED_CHANGED = "that the forward pass saved changed before the backward pass"
"""Part of `LayerCheck.why`, behind the number of tensors, if a backward pass was not compared for this reason."""
CPP_WRAPPER = (
    "C++ wrapper: the compiled library launches the kernels itself, where Python cannot observe them; compiled under"
    " stepscope run --aoti it prints them"
)
"""`Skipped.why` of a graph with a C++ wrapper; the output of the library may be in a log of its own."""
ARTIFACT_PREFIX = "stepscope_"
PRINTED_KEY = "printed_"
"""Beginning of `Graph.wrapper_key` if the graph was read from printed text."""
PRINTER_LEAVES_OUT = "weights, views and constants, which PyTorch's debug printer does not print"
"""`Graph.operands_left_out` of such graphs."""
OUTPUT_CODE = f"{ARTIFACT_PREFIX}output_code_"
"""Beginning of the name of an artifact that is not JSON: ``stepscope_output_code_3`` is the code of graph 3. The
artifact exists if torch does not log the code itself: the graph was loaded before recording began, is from a backend
other than Inductor, or its launches cannot be recorded."""
DEFAULT_DEVICE = ("/torch/utils/_device.py", "\\torch\\utils\\_device.py")
"""Ends of the name of the file through which the operators of a program pass that has set a default device
(`torch.set_default_device`)."""
UNRECORDED = "not recorded"
"""`TensorMeta.dtype` in the first call whose arguments are not recorded any more."""
FAILED_CALL = " API call failed at "
"""Text after the failed call in an exception from generated C++ code."""
CALL_RAISED = "the call raised: "
"""Beginning of the line that says why such a call failed."""
TORCH_NAMESPACES = (
    "aten", "prims", "prim", "inductor", "higher_order", "c10d", "_c10d_functional", "_c10d_functional_autograd",
    "c10d_functional", "symm_mem", "fsdp", "quantized", "onednn", "mkldnn", "mkl", "profiler", "rngprims", "debugprims",
    "_quantized", "quantized_decomposed", "torchvision", "bucketing",
)  # fmt: skip
"""Namespaces of operators that may return their input, as `wait_tensor` does, or that PyTorch itself checks."""
CALLED, LOADED, FAILED = "c", "p", "f"
"""What a program tells `stepscope run` at its end: that it has called `torch.compile`, that it has loaded a package of
AOTInductor, and that the recorder could not start."""
COMPILED_MODULE = "_orig_mod"
"""The name of the module in that of torch.compile."""
COMPILED_PREFIX, PARALLEL_PREFIX = f"{COMPILED_MODULE}.", "module."
"""What torch.compile adds to the keys of a `state_dict`, anywhere, and what DataParallel and DistributedDataParallel
add at the beginning."""
