"""The promise of --redact on a program that really compiles, with a secret in each thing that it names."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from stepscope.viewer.report.archive import archive
from stepscope.viewer.report.markdown import render_markdown
from stepscope.viewer.report.ticket import gather
from stepscope.viewer.report.write import render_ticket
from stepscope.viewer.store.open import open_trace
from tests import python_processes
from tests.capture.conftest import clean_environment
from tests.viewer.redaction.test_promise import MARK, of_archive, unfolded

pytestmark = pytest.mark.slow


PROGRAM = """
import sys, torch, stepscope

class Zq9classx7(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.Zq9modulex7 = torch.nn.Linear(4, 4)
        self.register_buffer("Zq9bufferx7", torch.ones(4))
        self.Zq9attributex7 = "Zq9constantx7"
        self.table = {"Zq9keyx7": 2.0}

    def forward(self, Zq9variablex7):
        first = self.Zq9modulex7(Zq9variablex7)  # Zq9commentx7
        if self.Zq9attributex7 == "Zq9constantx7":
            first = first * self.table["Zq9keyx7"]
        torch._dynamo.graph_break("Zq9breakx7")
        return Zq9functionx7(first) + self.Zq9bufferx7

def Zq9functionx7(value):
    return value.sin().relu()

model = torch.compile(Zq9classx7())
with stepscope.trace(sys.argv[1], level="values"):
    for _ in range(2):
        model(torch.randn(2, 4))
    print("Zq9printx7")
    raise ValueError("Zq9exceptionx7")
"""


def test_no_secret_of_a_compiled_program_is_in_a_redacted_ticket(tmp_path: Path) -> None:
    script = tmp_path / "Zq9userx7" / "Zq9scriptx7.py"
    script.parent.mkdir()
    script.write_text(PROGRAM, "utf-8")
    folder = tmp_path / "Zq9folderx7"
    environment = clean_environment(tmp_path / "cache", TORCH_ZQ9="Zq9environmentx7")
    done = python_processes.run([sys.executable, str(script), str(folder), "Zq9argumentx7"],
                                env=environment, timeout=200)  # fmt: skip
    assert "Zq9exceptionx7" in done.stderr
    in_log = set(MARK.findall("".join(path.read_text("utf-8", "replace") for path in folder.glob("*.log"))))
    assert len(in_log) >= 12, in_log
    with open_trace(folder) as trace:
        plain = unfolded(render_ticket(gather(trace)))
        ticket = gather(trace, redact=True, note="Zq9notex7")
        files = [unfolded(render_ticket(ticket)), unfolded(render_markdown(ticket)), of_archive(archive(ticket, None))]
    assert len(set(MARK.findall(plain))) >= 8
    assert not [found for text in files for found in re.findall("Zq9.{20}", text)]
