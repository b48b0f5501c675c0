"""Two launches of one site read tensors that are equal in every bit, by their digests, and wrote tensors that are not:
the kernel does not always give the same results. The first such launch of a log is named, with what its code shows. It
is a warning if a compiled kernel has no atomic additions, whose order is not fixed; with them, and for operators whose
code is not in the log, it is information. Launches that may use random numbers or leave memory unwritten are never
named, nor are collectives and operators of other libraries, which may keep a state. All elements of all tensors that
the launch reads must have been read, its constants must be fixed, and its code must be in the log. Graphs with dynamic
shapes, replays of CUDA graphs, and what user kernels write to memory that was not initialised are left out. The first
4,000,000 value rows are looked at."""

from __future__ import annotations

from stepscope.viewer.compare.queries.same_inputs import OtherBits, other_bits
from stepscope.viewer.findings.evidence import Evidence, Timed, attributes, grouped, names_text, open_launch, rule_of
from stepscope.viewer.findings.values.describe import describe
from stepscope.viewer.findings.values.operations import place, source_line
from stepscope.viewer.graphs.queries.graphs import code_of_graph, site_rows
from stepscope.viewer.graphs.queries.kernel_code import own_code
from stepscope.viewer.graphs.rows import SiteRow
from stepscope.viewer.kernel_source.nondeterminism import Cause, causes_in, may_be_random
from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.store.trace import Trace
from stepscope.viewer.text.formats import plural
from stepscope.viewer.values.queries.nonfinite import launch_place
from stepscope.viewer.values.queries.values import has_values, values_of

SUMMARY = "A kernel gave different results for the same inputs"
TITLE_IS_MEASURED = True

OPERATORS = ("extern_kernels.", "aten.", "torch.ops.aten.", "prims.", "torch.ops.prims.", "torch.ops.mkldnn.")
"""What the names of PyTorch's own operators begin with."""
_COMPILED = ("cpp", "triton", "user_triton")
_MOST_SITES = 20


def find(evidence: Evidence) -> list[Timed]:
    """Return one finding per log, at its first launch that gave other bits from the same inputs."""
    trace = evidence.trace
    if not has_values(trace):
        return []
    found = other_bits(trace)
    known = [(site, code) for site in site_rows(trace, list(found)) if (code := _code(trace, site)) is not None]
    known.sort(key=lambda pair: found[pair[0].site][0].launch)
    logs = grouped(known, lambda pair: found[pair[0].site][0].log)
    return [_finding(trace, group, found) for group in logs]


def _code(trace: Trace, site: SiteRow) -> str | None:
    """Return the code of a kernel that should always give the same results; None if it may not, or is unknown."""
    if site.kind not in _COMPILED and not site.kernel.startswith(OPERATORS):
        return None
    code = own_code(code_of_graph(trace, site.graph) or "", site.kernel, site.kind, site.line)
    if site.kind in _COMPILED and f"{site.kernel} = " not in code:
        return None
    arguments = [text for one in site.arguments for text in (one.name, one.parameter or "")]
    text = "\n".join([site.kernel, site.operator or "", code, *site.aten, *site.fx_nodes, *arguments])
    return None if may_be_random(text) else code


def _finding(trace: Trace, sites: list[tuple[SiteRow, str]], found: dict[int, list[OtherBits]]) -> Timed:
    site, code = sites[0]
    outputs = found[site.site]
    first, where, source = outputs[0], launch_place(trace, outputs[0].launch), source_line(site)
    causes, names = causes_in(site.kernel, code), {one.argument: one.name for one in site.arguments}
    rows = values_of(trace, [first.value, first.earlier_value])
    buffers = list(dict.fromkeys(names[one.argument] for one in outputs))
    earlier = launch_place(trace, first.earlier)
    inputs = sum(one.role != "out" for one in site.arguments)
    others = list(dict.fromkeys(other.kernel for other, _ in sites[1:]))
    proof = [
        f"Launch {first.earlier} (step {earlier.step}) and launch {first.launch} (step {first.step}) read the same bits"
        f" in {plural(inputs, 'tensor')} and wrote different bits to {names_text(buffers)}.",
        f"{describe(names[first.argument], rows[first.earlier_value])}, after launch {first.earlier}",
        f"{describe(names[first.argument], rows[first.value])}, after launch {first.launch}",
        _why(site, causes),
    ]
    if others:
        proof.append(f"The same happened at {plural(len(sites) - 1, 'other launch site')}: {names_text(others)}")
    return where.time_unix_ns, Finding(
        kind="nondeterministic",
        severity="warning" if site.kind in _COMPILED and not causes else "info",
        title=f"{site.kernel}{place(source)} gave different results for the same inputs",
        proof=proof,
        links=[
            open_launch(first.launch),
            open_launch(first.earlier),
        ],
        rule=rule_of(__doc__),
        evidence={
            "causes": list(causes),
            "buffers": buffers,
            "launch": first.launch,
            "earlier_launch": first.earlier,
            "times": first.times,
            "other_sites": [_launched(other, found) for other, _ in sites[1:_MOST_SITES]],
        },
        page=f"/steps/{first.step}?log={first.log}&launch={first.launch}",
        launch=first.launch,
        kernel=site.kernel,
        buffer=buffers[0],
        argument=buffers[0],
        graph=site.graph,
        source=source,
        rank=where.rank,
        **attributes(first, "step", "log"),
    )


def _launched(site: SiteRow, found: dict[int, list[OtherBits]]) -> str:
    return f"{site.kernel} (launch {found[site.site][0].launch})"


def _why(site: SiteRow, causes: list[Cause]) -> str:
    if causes:
        return f"Its code uses {' and '.join(causes)}."
    if site.kind in _COMPILED:
        return (
            "Its code shows neither atomic additions nor random numbers: it may have a data race, or read uninitialised"
            " memory."
        )
    return "The log does not contain what this operator computes internally."
