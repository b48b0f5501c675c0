"""How many clicks it takes from the first page of a log to what its reader came for."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import pytest

from stepscope.viewer.overview.rows import RunRow
from stepscope.viewer.store.open import open_trace
from stepscope.viewer.web.frame import run_name
from tests.logs import compile_logs, compile_summary_logs
from tests.logs.synthetic import LogBuilder
from tests.viewer.client import Client
from tests.viewer.crawling import PageChecker


def clicks(folder: Path, log: LogBuilder, said: str, most: int) -> int | None:
    """How many links lead from ``/`` to a page whose text matches `said`; None: more than `most`."""
    with open_trace(log.write(folder / "a.log")) as trace:
        client = Client(trace)
        seen, here = {"/"}, ["/"]
        for number in range(most + 1):
            there: list[str] = []
            for address in here:
                answer = client.get(address)
                if "text/html" not in answer.headers["content-type"]:
                    continue
                if re.search(said, unescape(re.sub(r"<[^>]+>", "", answer.text))):
                    return number
                checker = PageChecker()
                checker.feed(answer.text)
                there += [urljoin(address, link).partition("#")[0] for link in checker.links]
            here = [link for link in dict.fromkeys(there) if link not in seen]
            seen.update(here)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "said", "most"),
    [
        (compile_logs.run, r"Compile 2/0(?s:.*)def call\(args\)", 2),
        (compile_logs.run, r"recompiled(?s:.*)tensor 'x' size mismatch at index 0\. expected 4, actual 6", 1),
        (compile_summary_logs.with_breaks, r'stack of 2 frames(?s:.*)train\.py:3 step\(x\)(?s:.*)print\("here"\)', 1),
        (compile_summary_logs.with_recompiles, r"values, by compile(?s:.*)self\.step", 1),
        (compile_summary_logs.with_caches, r"components differ", 1),
        (compile_summary_logs.with_draft_export, r"Data-dependent error", 1),
        (compile_summary_logs.with_cuda_graphs, r"first incompatible node(?s:.*)aten\.nonzero\.default", 2),
        (compile_summary_logs.with_vllm, r"submod_0", 2),
    ],
)
def test_what_is_looked_for_is_near_the_first_page(log: object, said: str, most: int, tmp_path: Path) -> None:
    assert callable(log)
    found = clicks(tmp_path, log(), said, most)
    assert found is not None


def test_logs_are_named_by_rank_unless_two_share_it() -> None:
    fields = {name: None for name in RunRow.__dataclass_fields__}
    runs = [RunRow(**{**fields, "log": log, "rank": rank}) for log, rank in enumerate([0, 1, 1, None])]  # type: ignore[arg-type]
    assert [run_name(runs, log) for log in range(4)] == ["rank 0", "rank 1, log 1", "rank 1, log 2", "log 3"]
