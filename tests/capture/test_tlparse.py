"""Other readers of TORCH_TRACE logs open ours."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.conftest import Corpus
from tests.capture.logs import read_log

TLPARSE = Path(sys.executable).parent / "tlparse"


def tlparse() -> str:
    """Where it is."""
    program = str(TLPARSE) if TLPARSE.exists() else shutil.which("tlparse")
    if program is None:
        pytest.skip("tlparse is not installed")
    return program


@pytest.mark.parametrize("name", ["transformer", "custom_mutating"])
def test_tlparse_lists_our_artifacts(corpus: Corpus, name: str, tmp_path: Path) -> None:
    program = tlparse()
    (log,) = corpus.cold[name].trace.paths
    done = subprocess.run(
        [program, str(log), "-o", str(tmp_path / "out"), "--no-browser"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    stats = re.search(r"Stats \{(.*)\}", done.stdout + done.stderr)
    if stats:
        counts = {key: int(number) for key, number in re.findall(r"(\w+): (\d+)", stats[1])}
        assert not {key: count for key, count in counts.items() if count and ("fail" in key or "unknown" in key)}
    page = (tmp_path / "out" / "index.html").read_text()
    kinds = {record.artifact for record in read_log(log) if (record.artifact or "").startswith("stepscope_")}
    assert kinds
    assert [kind for kind in kinds if kind and kind not in page] == []
