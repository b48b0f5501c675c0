"""`load_state_dict(..., strict=False)` leaves tensors of a module as they are, without an error, because the keys of
the `state_dict` and those of the module differ by a prefix. torch.compile adds `_orig_mod.` to the keys of what it
compiles, DataParallel and DistributedDataParallel add `module.`, and a module of the program that holds the model adds
its own name. Keys that are missing match unexpected ones, with equal shapes, once `_orig_mod.` is removed wherever it
stands and one prefix is removed from the keys or added to them. These must be at least half of the module's parameters
and persistent buffers, or, if torch has added the prefix, at least half of the unexpected keys. Other keys that do not
match, as those of a new head, do not count. A call does not count, either, if another one loads the tensors before
compiled code runs. Calls before the recording do not count; it begins with the import of torch, or with
`stepscope.trace()`. A loop that copies the tensors before compiled code runs counts as loading them; without
`load_state_dict`, loops are not seen."""

from __future__ import annotations

from stepscope.tracer.schema.constants import COMPILED_PREFIX, PARALLEL_PREFIX
from stepscope.viewer.findings.evidence import Evidence, Timed, rule_of
from stepscope.viewer.findings.values.operations import place
from stepscope.viewer.graphs.rows import line_at
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.unmatched_keys import Unmatched, unmatched_keys

SUMMARY = "A checkpoint does not load tensors whose keys differ by a prefix"
TITLE_IS_MEASURED = True


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per call."""
    return [_finding(evidence, one) for one in unmatched_keys(evidence.trace)]


def _finding(evidence: Evidence, one: Unmatched) -> Timed:
    source = line_at(one.file, one.line)
    return one.time_unix_ns, Finding(
        kind="unmatched_keys",
        severity="warning",
        title=f"load_state_dict(strict=False){place(source)} does not load {one.missing:,} of"
        f" {plural(one.tensors, 'tensor')} of {one.module}: {_cause(one)}",
        proof=[
            f"Without the {_prefixes(one)}, {_matching(one)}.",
            _advice(one),
            "With strict=True, load_state_dict() raises an error in place of this.",
        ],
        rule=rule_of(__doc__),
        evidence={
            "module": one.module, "tensors": one.tensors, "missing": one.missing, "explained": one.explained,
            "given_prefix": one.given_prefix, "own_prefix": one.own_prefix, "given_key": one.given_key,
        },
        page="/",
        rank=evidence.rank_of(one.log),
        log=one.log,
        source=source,
    )  # fmt: skip


def _matching(one: Unmatched) -> str:
    if one.explained == 1:
        return f"1 key would match: {one.given_key}"
    return f"{one.explained:,} keys would match; the first is {one.given_key}"


def _prefixes(one: Unmatched) -> str:
    return "prefixes" if one.given_prefix and one.own_prefix else "prefix"


def _cause(one: Unmatched) -> str:
    given = f"the keys of the checkpoint contain {_named(one.given_prefix)}" if one.given_prefix else ""
    own = f"the keys of the module contain {_named(one.own_prefix)}" if one.own_prefix else ""
    return f"{given}, and {own}" if given and own else given or own


def _named(prefix: str) -> str:
    makers = [
        *(["torch.compile"] if COMPILED_PREFIX in prefix else []),
        *(
            ["DataParallel or DistributedDataParallel"]
            if prefix.replace(COMPILED_PREFIX, "") == PARALLEL_PREFIX
            else []
        ),
    ]
    return f'"{prefix}"' + (f" of {' and '.join(makers)}" if makers else "")


def _advice(one: Unmatched) -> str:
    prefix = one.given_prefix or one.own_prefix
    if prefix == COMPILED_PREFIX:
        return (
            "Use getattr(model, '_orig_mod', model) to save and to load, or remove \"_orig_mod.\" from the keys of the"
            " checkpoint."
        )
    if one.given_prefix:
        return f'Remove "{prefix}" from the keys of the checkpoint, or save the state_dict() of the inner module.'
    return f'Call load_state_dict() of the inner module, model.{prefix.rstrip(".")}, whose keys lack "{prefix}".'
