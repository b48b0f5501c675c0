"""Finds the kind of a record by its event or name."""

from __future__ import annotations

from collections.abc import Mapping

from stepscope.tracer.schema.constants import ARTIFACT_PREFIX
from stepscope.tracer.schema.gaps import CompileError
from stepscope.viewer.ingest.torch_trace.artifact_kinds import ARTIFACTS
from stepscope.viewer.ingest.torch_trace.event_kinds import DUMPS, EVENTS
from stepscope.viewer.ingest.torch_trace.record_kind import RecordKind

UNREADABLE = "unreadable"
"""Event of a record whose JSON cannot be read."""
UNKNOWN_PREFIX = "unknown_event:"
"""Prefix of the names of unknown events among the keys of the index's `meta`."""
KNOWN_EVENTS = frozenset([*EVENTS, "artifact", UNREADABLE])
COMPILE_ERROR = ARTIFACT_PREFIX + CompileError.KIND
NO_ID = "-"
"""Id of compiles that PyTorch gives none, such as those of AOTInductor: they are one compile of their log."""
KINDS = {**ARTIFACTS, **DUMPS, **EVENTS}
"""Kinds by the name of an event, an artifact or a dump."""
_OF_A_COMPILE = frozenset([COMPILE_ERROR, *(name for name, kind in KINDS.items() if kind.of_compile)])

_UNKNOWN_EVENT = RecordKind(
    "Record of an unknown kind",
    "PyTorch 2.6 to 2.15 do not log this event. It comes from a newer version or another program.",
    "record.raw",
    known=False,
)
_UNKNOWN_ARTIFACT = RecordKind(
    "Artifact",
    "PyTorch 2.6 to 2.15 do not log an artifact of this name. It comes from a newer version or another program.",
    "record.raw",
    known=False,
)
_UNREADABLE_EVENT = RecordKind(
    "Unreadable record",
    "The JSON of its header is damaged; the Problems page gives the position.",
    "record.raw",
    known=False,
)


_OWN = RecordKind(
    "stepscope record",
    "stepscope's recorder wrote this record. The other pages show its content.",
)
_ENDINGS: Mapping[str, RecordKind] = {
    "_ORIGINAL_BYTECODE": RecordKind(
        "Bytecode of the function", "The Python bytecode of the function that Dynamo traces.", "code_views.plain"
    ),
    "_MODIFIED_BYTECODE": RecordKind(
        "Bytecode from Dynamo",
        "The bytecode that replaces the function. It calls the compiled graphs and runs the code between them.",
        "code_views.plain",
    ),
    "_ITERATIVE_RECOMPUTE_ERROR": RecordKind(
        "Recompute mismatch after a swap",
        "The pass updates its memory estimate when it moves nodes. A full recomputation gave a different estimate.",
        "inductor_views.code_or_prose",
    ),
    "_pre_grad": RecordKind("Graph after a pre-grad pass", "The graph after the named pass.", "code_views.graph"),
    "_post_grad": RecordKind("Graph after a post-grad pass", "The graph after the named pass.", "code_views.graph"),
    "_fused": RecordKind(
        "Scheduler nodes and buffers",
        "The input of the pass that reorders nodes for peak memory, logged for debugging the pass.",
        "inductor_views.code_or_prose",
    ),
}
_FUSION = RecordKind(
    "Graph after batch fusion",
    "The graph after operators of the same kind were fused into batches.",
    "code_views.graph",
)
_VLLM = RecordKind(
    "vLLM record", "vLLM compiles a model in pieces and logs each of them.", "inductor_views.code_or_prose"
)
_VLLM_GRAPH = RecordKind(
    "Piece of a vLLM model",
    "A graph or a part of a graph that vLLM compiles separately.",
    "inductor_views.code_or_prose",
)
_FLEX_GEMM = RecordKind(
    "Lowering of FlexGEMM",
    "A part of how Inductor chose and generated the kernel of a matrix product with an epilogue of the program's own.",
    "inductor_views.code_or_prose",
)


def _artifact_kind(name: str) -> RecordKind | None:
    """Return the kind of an artifact, or None if the name is unknown."""
    if name in ARTIFACTS:
        return ARTIFACTS[name]
    if name.startswith("vllm_"):
        return _VLLM_GRAPH if any(word in name for word in ("graph", "sub", "patterns")) else _VLLM
    if name.startswith(("optimus_", "cff_")):
        return _FUSION
    if name.startswith("flex_gemm_"):
        return _FLEX_GEMM
    return next((kind for ending, kind in _ENDINGS.items() if name.endswith(ending)), None)


def kind_of(event: str, name: str | None) -> RecordKind:
    """Return the kind of records with an event and, for artifacts, a name."""
    if event != "artifact":
        return EVENTS.get(event, _UNREADABLE_EVENT if event == UNREADABLE else _UNKNOWN_EVENT)
    if name is not None and name.startswith(ARTIFACT_PREFIX):
        return _OWN
    return (_artifact_kind(name) if name is not None else None) or _UNKNOWN_ARTIFACT


def name_of(event: str, name: str | None) -> str:
    """Return the key of a record in `KINDS`: the name of an artifact or a dump, else the event."""
    return name or event if event in ("artifact", "graph_dump") else event


def is_of_a_compile(event: str, name: str | None) -> bool:
    return name_of(event, name) in _OF_A_COMPILE
