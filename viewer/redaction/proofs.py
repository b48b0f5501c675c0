"""Defines proofs that a text may be shown in a redacted report: closed grammars over public names.

A proof holds for a complete text. Names that only PyTorch gives (operators, dtypes, buffers of Inductor) are listed or
numbered; nothing that a program, its files or its machine could have named has a proof.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

Proof = Callable[[str], bool]

_LONGEST = 400


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DTYPES = words(
    "float16 bfloat16 float32 float64 half float double complex32 complex64 complex128 bool uint8 "
    "uint16 uint32 uint64 int8 int16 int32 int64 short int long float8_e4m3fn float8_e5m2 "
    "float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu float4_e2m1fn_x2 qint8 quint8 qint32 bits8 bits16 "
    "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
)
_DEVICE_TYPES = "cpu|cuda|xpu|mps|mtia|hpu|npu|meta|vulkan|xla|maia|ipu|privateuseone|fpga|lazy"
_DEVICE = re.compile(rf"(?:{_DEVICE_TYPES})(?::\d{{1,4}})?(?: \(\d{{1,5}} cores?\))?")
_DEVICE_MODEL = re.compile(
    r"(?:NVIDIA|AMD|Intel)(?:\(R\))?(?: (?:GeForce|Tesla|Quadro|Graphics|Radeon|Instinct|Pro|Arc|Max|Data|Center|GPU|"
    r"Super|Ti|GTX|RTX|TITAN|RTX|Xp|Ada|Generation|Laptop|SXM\d?|PCIe|NVL|HBM\d?e?|\d{1,3}GB|MIG|\dg\.\d{1,3}gb|"
    r"[ABGHLTVPK]{1,2}\d{1,4}[a-zA-Z]?(?:-(?:PCIE|SXM\d?|PCIe|\d{1,3}GB)){0,3}|MI\d{1,3}[XA]?|\d{3,4}(?:XT|XTX)?|B\d{2,3})){1,6}"
)
_VERSION = re.compile(
    r"\d{1,4}(?:\.\d{1,8}){1,3}(?:(?:a|b|rc|\.dev|\.post)\d{1,8}){0,2}(?:a\d{1,4})?"
    r"(?:\+(?:cpu|xpu|cu\d{2,3}|rocm\d+(?:\.\d+){0,2}|git[0-9a-f]{7,40}|[0-9a-f]{7,40}))?"
)
_PLATFORM = re.compile(
    r"[0-9a-f]{40}|x86_64|aarch64|arm64|AMD64|ppc64le|riscv64|s390x|DEFAULT|AVX2|AVX512|NO AVX|VSX|Z VECTOR|SVE256|"
    r"glibc \d{1,2}\.\d{1,3}|\d{4,6}|(?:x86_64-linux-gnu-|aarch64-linux-gnu-)?(?:g\+\+|clang\+\+|c\+\+)(?:-\d{1,3})?|"
    r"(?:GCC|OpenMP|clang) \d{1,3}(?:\.\d{1,3}){0,2}|(?:LAPACK|NNPACK) is enabled(?: \(usually provided by MKL\))?|"
    r"C\+\+ Version: \d{6}|CPU capability usage: [A-Z0-9 ]{3,12}|(?:Debian GNU/Linux|Ubuntu|Fedora Linux|Red Hat "
    r"Enterprise Linux|CentOS Stream|Rocky Linux|AlmaLinux|Arch Linux|Alpine Linux|macOS|Windows)"
    r"(?: \d{1,2}(?:\.\d{1,2}){0,2})?(?: LTS)?(?: \([A-Za-z]{3,12}(?: [A-Z][a-z]{3,12})?\))?"
)
_PACKAGE = re.compile(
    r"torch(?:vision|audio|ao|titan|tune|text|data|metrics)?|pytorch-(?:lightning|triton)|functorch|triton|numpy|sympy|"
    r"networkx|(?:nvidia|cuda)-[a-z]{2,10}(?:-(?:cu\d\d|runtime|bindings)){0,2}|cupy(?:-cuda\d\dx)?|mkl|intel-openmp|onnx|"
    r"onnxruntime|optree|flash-attn|xformers|transformers|accelerate|diffusers|peft|datasets|deepspeed|lightning|"
    r"bitsandbytes|vllm|sglang|liger-kernel|jax|tensorflow|stepscope"
)
_COMPILE_ID = re.compile(r"!?(?:r\d{1,6}:)?\[?\d{1,9}(?:/\d{1,9}){0,3}(?:_\d{1,9})?\]?")
_AOT_ID = re.compile(r"\d{1,6}(?:_(?:forward|backward|inference|joint))?")
_PHASE = r"(?:forward|backward|inference|joint)"
_LABEL = re.compile(rf"(?:{_COMPILE_ID.pattern}|graph \d{{1,9}})(?: {_PHASE})?(?: · (?P<function>\w+))?")
_GRAPH_WORD = (
    r"(?:true|false|cond|body|while|loop|fw|bw|fwd|bwd|joint|combine|scan|associative|map|repeated|invoke|sub|subgraph|"
    r"subgraphs|score|mod|mask|forward|backward|graph|partition|partitions|call|runner|sdpa|\d{1,6})"
)
_FUNCTION = re.compile(rf"{_GRAPH_WORD}(?:_{_GRAPH_WORD}){{0,8}}")
_SNODE = re.compile(r"(?:op|foreach_)?\d{1,7}(?:_op\d{1,7}){0,200}|op\d{1,7}(?:_op\d{1,7}){0,200}|buf\d{1,7}")
_SNODE_CLASS = words(
    "SchedulerNode FusedSchedulerNode ExternKernelSchedulerNode NopKernelSchedulerNode "
    "ForeachKernelSchedulerNode GroupedSchedulerNode OuterLoopFusedSchedulerNode BaseSchedulerNode "
    "FusedMixOrderReductions"
)
_NAME = re.compile(
    r"buf\d+|arg\d+_\d+|primals_\d+|tangents_\d+|workspace_\d+|(?:in_out|in|out|ks|ws|seed|load_seed_offset)_?(?:ptr)?\d*|"
    r"(?:[xyz]|r\d?_?)numel|xnumel_\d+|rnumel_\d+|(?:s|u|zf|zuf|ps)\d{1,6}|(?:[XYZ]|R\d?_?)BLOCK|ks\d+|tmp\d+|"
    r"(?:fwd|bwd)_rng_state_\d+|(?:fwd|bwd)_base_offset_\d+|_frozen_param\d+|constant\d+|_tensor_constant\d+|"
    r"seed_(?:cpu|cuda|xpu)_None|reinterpret_tensor|as_strided|stream\d+|raw_stream\d*|num_warps|num_stages|num_ctas|"
    r"subgraph\d+|None|True|False|torch|device|dtype"
)
_BLOCKS = re.compile(
    r"(?:[XYZ]|R\d?_?)BLOCK(?:_\d+)?|BLOCK_[MNK]|GROUP_M|ACC_TYPE|num_(?:warps|stages|ctas|buffers\w{0,10})"
)
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?(?:e[+-]?\d+)?|[()\[\],.:*+/ -]")
_SUFFIXED = re.compile(r"(?P<name>.+?)_\d{1,6}")
_KERNEL = re.compile(
    r"(?:cpp|triton_(?:poi|red|per|tem|for|unk|spl|split_scan|mm|mix|nat|sort|pers)|triton|pallas|cutedsl|cutlass|mps|metal)"
    r"_(?:fused_?)?(?P<operators>\w*?)(?:_?\d{1,6})?"
)
_EXTERN = re.compile(r"(?:extern_kernels|aten|prims|inductor)\.(?P<name>\w+)(?P<overload>\.\w+)?")
_OPERATOR = re.compile(r"(?:torch\.ops\.)?(?P<namespace>\w+)(?:\.|::)(?P<name>\w+)(?:\.(?P<overload>\w+))?")
_AOTI = re.compile(rf"aoti_torch_(?:(?:{_DEVICE_TYPES})_)?(?:_)?(?P<operators>\w+?)(?:_out)?")
_EXTERN_ONLY = words("bias_addmm _mm_plus_mm mm_plus_mm addmm_out mm_out bmm_out baddbmm_out convolution_out")
_NODES = frozenset(["getitem", "half", "float", "double", "scalar_tensor"])
_METHODS = words("copy_ zero_ fill_ item size stride clone contiguous fallback")
_SIGNAL = re.compile(
    r"SIG(?:HUP|INT|QUIT|ILL|TRAP|ABRT|BUS|FPE|KILL|USR1|SEGV|USR2|PIPE|ALRM|TERM|CHLD|CONT|STOP|TSTP|XCPU|XFSZ|SYS)|"
    r"signal \d{1,3}|exit code \d{1,3}|time limit"
)
_DEVICE_ERRORS = frozenset(
    f"CUDA error: {text}"
    for text in (
        "an illegal memory access was encountered", "device-side assert triggered", "out of memory",
        "misaligned address", "unspecified launch failure", "an illegal instruction was encountered",
        "invalid configuration argument", "invalid argument", "invalid device function", "launch timed out",
        "the launch timed out and was terminated", "too many resources requested for launch",
        "operation not permitted when stream is capturing", "uncorrectable ECC error encountered",
        "hardware stack error", "invalid program counter", "unknown error",
    )
)  # fmt: skip
_TOOL_ERROR = re.compile(
    r"Invalid (?:__(?:global|shared|local|constant)__ )?(?:read|write|atomic) of size \d{1,4} bytes?|"
    r"(?:Uninitialized|Potential) (?:__(?:global|shared)__ )?(?:memory read|read|write|(?:RAW|WAW|WAR) hazard)"
    r"(?: of size \d{1,4} bytes?)?|Program hit CUDA_ERROR_[A-Z_]{3,40} \(error \d{1,4}\)"
)
_TOOL_PLACE = re.compile(r"thread \(\d+,\d+,\d+\) in block \(\d+,\d+,\d+\)")


@cache
def _public() -> dict[str, Any]:
    """Return the names of PyTorch that docs/generate_torch_names.py has collected."""
    read: dict[str, Any] = json.loads(Path(__file__).with_name("torch_names.json").read_text("utf-8"))
    return {name: frozenset(found if isinstance(found, list) else found.split()) for name, found in read.items()}


@cache
def operators_of(*namespaces: str) -> frozenset[str]:
    """Return the public names of the operators in namespaces of PyTorch, such as ``aten``."""
    return frozenset().union(*(_public()[f"operators of {namespace}"] for namespace in namespaces))


@cache
def _all_operators() -> frozenset[str]:
    return frozenset().union(*(names for name, names in _public().items() if name.startswith("operators of ")))


def whole(pattern: re.Pattern[str]) -> Proof:
    return lambda text: len(text) <= _LONGEST and pattern.fullmatch(text) is not None


is_device_type, version, compile_id, aot_id = whole(_DEVICE), whole(_VERSION), whole(_COMPILE_ID), whole(_AOT_ID)
wrapper_function, block, signal, tool_place = whole(_FUNCTION), whole(_BLOCKS), whole(_SIGNAL), whole(_TOOL_PLACE)
tool_error, platform, package = whole(_TOOL_ERROR), whole(_PLATFORM), whole(_PACKAGE)


def device(text: str) -> bool:
    return is_device_type(text) or (len(text) < 60 and _DEVICE_MODEL.fullmatch(text) is not None)


def dtype(text: str) -> bool:
    return text.removeprefix("torch.") in _DTYPES


def symptom(text: str) -> bool:
    return text in _DEVICE_ERRORS or signal(text)


def graph_label(text: str) -> bool:
    found = _LABEL.fullmatch(text)
    return found is not None and (found["function"] is None or wrapper_function(found["function"]))


def snode(text: str) -> bool:
    return (len(text) <= 4000 and _SNODE.fullmatch(text) is not None) or text in _SNODE_CLASS


def operator(text: str) -> bool:
    """Accept ``aten.mm.default``, ``torch.ops.aten.mm``, ``mm``, and an FX node named after one: ``mm_1``."""
    found = _OPERATOR.fullmatch(text)
    if found is not None and f"operators of {found['namespace']}" in _public():
        known = found["name"] in _public()[f"operators of {found['namespace']}"]
        return known and (found["overload"] is None or found["overload"] in _public()["overloads"])
    if text in _all_operators():
        return True
    numbered = _SUFFIXED.fullmatch(text)
    return _is_node(numbered["name"] if numbered is not None else text)


@cache
def _is_node(text: str) -> bool:
    """Accept ``mm`` and ``getitem``, also with an overload: ``mul_tensor``."""
    if text in _all_operators() or text in _NODES:
        return True
    overloads = _small_overloads()
    places = [i for i, char in enumerate(text) if char == "_"]
    return any(text[:i] in _all_operators() and text[i + 1 :] in overloads for i in places)


@cache
def _small_overloads() -> frozenset[str]:
    return frozenset(name.lower() for name in _public()["overloads"])


@cache
def _are_operators(text: str) -> bool:
    """Return whether `text` consists of names of operators, joined by underscores."""
    ends = {0}
    for end in range(1, len(text) + 1):
        if end < len(text) and text[end] != "_":
            continue
        if any((text[start:end] in _all_operators()) for start in ends):
            ends.add(end + 1)
    return len(text) + 1 in ends


def kernel(text: str) -> bool:
    """Accept a kernel that Inductor named after its operators, an operator, or one of Inductor's own calls."""
    if not text or len(text) > 2000:
        return False
    found = _KERNEL.fullmatch(text) or _AOTI.fullmatch(text)
    if found is not None and (not found["operators"] or _are_operators(found["operators"])):
        return True
    extern = _EXTERN.fullmatch(text)
    if extern is not None and extern["name"] in _EXTERN_ONLY:
        return True
    if extern is not None and text.startswith("extern_kernels.") and extern["overload"] is None:
        return extern["name"] in _all_operators()
    return operator(text) or text in _METHODS or wrapper_function(text)


def name(text: str) -> bool:
    """Accept Inductor's name of a buffer, an argument or an FX node, or an expression of such names."""
    if len(text) > _LONGEST:
        return False
    if _NAME.fullmatch(text) or snode(text) or operator(text) or dtype(text):
        return True
    tokens = _TOKEN.findall(text)
    words = [token for token in tokens if token[0].isalpha() or token[0] == "_"]
    is_whole = "".join(tokens) == text
    return (
        is_whole
        and bool(words)
        and len(tokens) > 1
        and all(_NAME.fullmatch(word) or dtype(word) or operator(word) for word in words)
    )


def parameter(text: str) -> bool:
    return name(text) or text in _public()["parameters"]


_SCALAR = re.compile(r"-?\d{1,25}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?|-?inf|nan|True|False|None")
_SCALAR_TYPES = words(
    "int int32_t int64_t float double bool str list tuple i1 i8 i16 i32 i64 u8 u16 u32 u64 fp16 bf16 fp32 fp64 number "
    "SymInt ScalarType Layout Device MemoryFormat Generator constexpr"
)


def scalar(text: str) -> bool:
    """Accept a number, or an expression of numbers that a wrapper computes."""
    return _SCALAR.fullmatch(text) is not None or name(text)


def scalar_type(text: str) -> bool:
    """Accept types like ``int64_t`` and ``Optional[ScalarType]``."""
    return len(text) < 60 and all(part in _SCALAR_TYPES | {"Optional", "List"} for part in re.findall(r"\w+", text))


def span(text: str) -> bool:
    """Accept ``inductor_compile``, ``pass.post_grad_passes.remove_noop_ops``, ``compile_attempt_0``."""
    known = _public()["spans"]
    if text in known:
        return True
    parts = text.split(".") if text.startswith("pass.") else [text]
    return all(part in known or ((found := _SUFFIXED.fullmatch(part)) and found["name"] in known) for part in parts)


def metric(text: str) -> bool:
    return text in _public()["metrics"]


_CACHE_RECORD = re.compile(
    r"(?:fx_graph|aotautograd|aot_autograd|remote_fx_graph|pgo)_cache_(?:hit|miss|bypass|hash|save|load)"
)
record = whole(_CACHE_RECORD)
_NUMBER = re.compile(
    r"[-+−]?\d[\d,]{0,25}(?:\.\d{1,20})?(?:e[-+]?\d{1,3})?(?: ?(?:B|kB|MB|GB|TB|ns|us|ms|s|min|h|%))?|"
    r"\d[\d,]{0,25}(?:st|nd|rd|th)|\[(?:\d{1,18}(?:, \d{1,18}){0,20})?\]|NaN|[+-]inf(?: and -inf)?"
)


def number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


_COUNT = r"\d[\d,]*"
_VALUE = r"(?:[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|unknown|inf|-inf|nan)"
_OF = rf"(?:{_COUNT} sampled elements \(of {_COUNT}\)|{_COUNT} elements)"
_BAD = rf"(?:NaN|\+inf|-inf) in (?:at least )?{_COUNT} of {_OF}"
_LIMIT = rf"{_VALUE} \((?P<dtype>\w+)(?: limit {_VALUE})?\)"
_CONTENT = re.compile(
    rf"(?:\[\d+\])?(?: \((?:real|imaginary|data|scale|values|indices)\))? (?:"
    rf"{_BAD}(?:, {_BAD}){{0,2}}(?:, first at (?:\[[\d, ]*\]|\d+))?(?:; largest finite magnitude {_LIMIT})?"
    rf"|finite(?: in {_OF})?(?:, zero in {_COUNT} of {_OF})?"
    rf"(?:, largest magnitude {_LIMIT.replace('<dtype>', '<dtype_2>')})?"
    r"|is empty|not read|uninitialised: never written)"
)


def described(text: str) -> re.Match[str] | None:
    """Match the description of a tensor by `findings.values.describe`, without its name."""
    found = _CONTENT.fullmatch(text)
    given = found and (found["dtype"] or found["dtype_2"])
    return found if given is None or dtype(given) else None


_LARGEST = re.compile(
    rf"(?:, largest|; largest finite) magnitude {_VALUE} \(\w+(?: limit {_VALUE})?\)"
    rf"|(?<= inputs) of at most {_VALUE}"
)
_OF_LAYERS = re.compile(rf"\b(compiled|eager|float64|allowed error) {_VALUE}")
_COURSE = re.compile(rf"(?<=^largest magnitude )[^a-z]*|(?<=^L2 norm )[^a-z]*|(?<=^value ){_VALUE}[^a-z]*")


def without_values(content: str) -> str:
    """Return a description without the numbers in it that were read from a tensor."""
    return _COURSE.sub("", _OF_LAYERS.sub(r"\1 –", _LARGEST.sub("", content)))
