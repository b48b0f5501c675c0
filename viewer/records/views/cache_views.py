"""Views of cache records: hits, misses, bypasses, saved results, and the components of keys."""

from __future__ import annotations

import re
from typing import Any

from stepscope.viewer.records.rows import (
    MAX_ROWS,
    Block,
    Cell,
    Fact,
    FactsView,
    NoteView,
    TextView,
    TreeNode,
    TreeView,
)
from stepscope.viewer.records.views.json_views import facts_of, json_blocks
from stepscope.viewer.records.views.measures import NOT_SAID, is_short, value_of
from stepscope.viewer.records.views.record import LoggedRecord
from stepscope.viewer.records.views.shape import get_list, parsed, payload_object, shown, text_or_none

_COMPONENT = re.compile(r"\[(\w{20,64})\] ([^:\n]{1,200}): ?")
_SEEN = ("cache_state", "key", "components", "compile_id", "cache_status_detailed", "cache_bypass_reason")
_SAID = {
    "hit": "The cache contained the result.",
    "miss": "The cache contained no entry for this key, so it was compiled.",
    "bypass": "The cache could not be used, so it was compiled and will be compiled again in each run.",
    "saved": "The result was saved in the cache.",
}


def lookup(record: LoggedRecord) -> list[Block]:
    """Show a cache lookup: its state, the reason, the time saved, and the components of the key."""
    value = payload_object(record.payload)
    state = text_or_none(value.get("cache_state")) or (record.name or "").rpartition("_")[2]
    detailed = value.get("cache_status_detailed")
    facts = [
        Fact("state", Cell(state, _SAID.get(state, ""))),
        Fact("key", Cell(text_or_none(value.get("key")), "no key could be computed", mono=True)),
    ]
    if detailed is not None and shown(detailed) != state:
        facts.insert(1, Fact("in detail", Cell(shown(detailed))))
    blocks: list[Block] = [FactsView(facts)]
    if state in _SAID:
        blocks.append(NoteView(_SAID[state], warning=state == "bypass"))
    reason = value.get("cache_bypass_reason")
    if reason is not None:
        blocks.append(TextView(shown(reason), "Why"))
    rest = {name: item for name, item in value.items() if name not in _SEEN}
    short = {name: item for name, item in rest.items() if is_short(item)}
    if any(item is not None for item in short.values()):
        blocks.append(facts_of(short))
    for name, item in rest.items():
        if name not in short:
            blocks += json_blocks(item, name)
    components = components_of(get_list(value, "components"))
    return [*blocks, TreeView(components, "Components of the key")] if components else blocks


def components_of(lines: list[Any]) -> list[TreeNode]:
    """Return the components of a key with hash, name and text, which older versions spread over several lines."""
    parts: list[tuple[str, str, list[str]]] = []
    for line in lines[: 10 * MAX_ROWS]:
        text = shown(line)
        match = _COMPONENT.match(text)
        if match:
            parts.append((match[2], match[1], [text[match.end() :]]))
        elif parts:
            parts[-1][2].append(text)
        else:
            parts.append(("", "", [text]))
    return [_part(name, digest, "\n".join(text).strip("\n")) for name, digest, text in parts]


def _part(name: str, digest: str, text: str) -> TreeNode:
    short = f"{digest[:8]}…" if digest else ""
    if "\n" not in text and len(text) < 200:
        return TreeNode(name, short, code=text)
    return TreeNode(name, short, children=[TreeNode("", code=text[:100_000])])


def keyless(record: LoggedRecord) -> list[Block]:
    """Show a record of a cache that has its own fields instead of a state and a key."""
    value = parsed(record.payload)
    if isinstance(value, dict):
        reason = value.get("_reason", value.get("reason", value.get("error")))
        rest = {name: item for name, item in value.items() if name not in ("_reason", "reason", "error")}
        first: list[Block] = [] if reason is None else [TextView(shown(reason), "Why")]
        return first + (json_blocks(rest) if rest else [])
    return json_blocks(value)


def torch_version(record: LoggedRecord) -> list[Block]:
    value = payload_object(record.payload)
    commit = text_or_none(value.get("commit"))
    facts = [
        Fact("PyTorch", Cell(text_or_none(value.get("pytorch_version")), NOT_SAID)),
        Fact("commit", Cell(commit, NOT_SAID, href=_commit_page(commit), mono=True)),
    ]
    rest = [Fact(n, value_of(n, item)) for n, item in value.items() if n not in ("pytorch_version", "commit")]
    return [FactsView(facts + rest)]


def _commit_page(commit: str | None) -> str | None:
    known = commit is not None and re.fullmatch(r"[0-9a-f]{40}", commit)
    return f"https://github.com/pytorch/pytorch/tree/{commit}" if known else None
