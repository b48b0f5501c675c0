"""The pre-forking server whose workers leave by os._exit(0), as launchers and their workers do."""

from __future__ import annotations

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).with_name("forking_server.py")))["main"]("exit")
