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
    "PyTorch 2.6 to 2.13 write no such event: a newer version, or another program, does. It is kept as it is.",
    "record.raw",
    known=False,
)
_UNKNOWN_ARTIFACT = RecordKind(
    "Artifact",
    "PyTorch 2.6 to 2.13 write no artifact of this name: a newer version or another program does. It is kept as it is.",
    "record.raw",
    known=False,
)
_UNREADABLE_EVENT = RecordKind(
    "Record that cannot be read",
    "The JSON of its header is broken; the page of problems says where.",
    "record.raw",
    known=False,
)


_OWN = RecordKind(
    "Record of stepscope",
    "Written by stepscope's recorder: what ran, and what it read; the other pages are made from these.",
)
_ENDINGS: Mapping[str, RecordKind] = {
    "_ORIGINAL_BYTECODE": RecordKind(
        "Bytecode of the function", "The function as Python compiled it; Dynamo traces this.", "code_views.plain"
    ),
    "_MODIFIED_BYTECODE": RecordKind(
        "Bytecode that Dynamo made",
        "What runs in place of the function: it calls the compiled graphs and does what stands between them.",
        "code_views.plain",
    ),
    "_ITERATIVE_RECOMPUTE_ERROR": RecordKind(
        "Mismatch of memory after a swap",
        "The pass keeps its estimate of memory up to date as it moves nodes; recomputed from scratch it came out"
        " otherwise.",
        "inductor_views.code_or_prose",
    ),
    "_pre_grad": RecordKind(
        "Graph after a pre-grad pass", "The graph after the named pass changed it.", "code_views.graph"
    ),
    "_post_grad": RecordKind(
        "Graph after a post-grad pass", "The graph after the named pass changed it.", "code_views.graph"
    ),
    "_fused": RecordKind(
        "Scheduler nodes and buffers",
        "What the pass that reorders for the peak of memory was given, for its own debugging.",
        "inductor_views.code_or_prose",
    ),
}
_FUSION = RecordKind(
    "Graph after a fusion in batches", "The graph after like operators were put together.", "code_views.graph"
)
_VLLM = RecordKind(
    "Record of vLLM", "vLLM compiles a model piece by piece and says so here.", "inductor_views.code_or_prose"
)
_VLLM_GRAPH = RecordKind(
    "Piece of a vLLM model", "A graph, or a part of one, that vLLM compiles alone.", "inductor_views.code_or_prose"
)


def _artifact_kind(name: str) -> RecordKind | None:
    """Return the kind of an artifact, or None if the name is unknown."""
    if name in ARTIFACTS:
        return ARTIFACTS[name]
    if name.startswith("vllm_"):
        return _VLLM_GRAPH if any(word in name for word in ("graph", "sub", "patterns")) else _VLLM
    if name.startswith(("optimus_", "cff_")):
        return _FUSION
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
