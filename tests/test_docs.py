"""Generated documentation is current."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_format_description_is_current() -> None:
    script = ROOT / "docs" / "generate_format.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False)
    assert done.returncode == 0, "docs/format.md is not current: run `python docs/generate_format.py`"
