"""A notebook that records one of its cells and looks at what was recorded in the next."""

from __future__ import annotations

import nbclient
import nbformat

CELLS = (
    "import torch, stepscope\nf = torch.compile(lambda x: (x @ x).sin().sum())\n_ = torch.manual_seed(0)",
    """with stepscope.trace("trace_cell", level="values"):
    for _ in range(3):
        value = f(torch.randn(8, 8))
        stepscope.step()
print(f"{value.item():.10f}")""",
    """for _ in range(2):
    value = f(torch.ones(8, 8))
print(f"{value.item():.10f}")""",
    """recorder = stepscope.trace("trace_again")
with recorder:
    value = f(torch.ones(8, 8))
print(f"{value.item():.10f}")""",
    "!python -m stepscope summary trace_cell | head -n 1",
)


def main() -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in CELLS]
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    for cell in notebook.cells:
        for output in cell.outputs:
            print(output.get("text") or output.get("data", {}).get("text/plain"))
    print("ITERATIONS 6")


if __name__ == "__main__":
    main()
