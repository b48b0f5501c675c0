"""Groups the findings of several logs that say the same, so that a job of many ranks is told each cause once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from stepscope.viewer.overview.rows import Finding
from stepscope.viewer.text.alike import pattern_of


@dataclass(frozen=True)
class FindingGroup:
    """Findings of different logs that differ only in names and numbers."""

    first: Finding
    """The finding that stands for all."""
    others: list[Finding]


def finding_groups(findings: Sequence[Finding]) -> list[FindingGroup]:
    """Return the findings in groups, in the order of their first findings. Findings of one log stay apart."""
    groups: dict[Hashable, FindingGroup] = {}
    seen: Counter[Hashable] = Counter()
    for place, finding in enumerate(findings):
        if finding.log is None:
            groups[place] = FindingGroup(finding, [])
            continue
        alike = _alike(finding)
        seen[finding.log, alike] += 1
        key = (seen[finding.log, alike], alike)
        if key in groups:
            groups[key].others.append(finding)
        else:
            groups[key] = FindingGroup(finding, [])
    return list(groups.values())


def _alike(finding: Finding) -> Hashable:
    line = (finding.source.file, finding.source.line) if finding.source is not None else None
    what = (finding.kind, finding.severity, pattern_of(finding.title))
    return (*what, line, finding.kernel, finding.buffer)
