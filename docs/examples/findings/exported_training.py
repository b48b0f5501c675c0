"""The model is exported in training mode, so that the package drops values at random in each request.

$ stepscope run exported_training.py
warning: The package that is compiled at exported_training.py:33 drops values at random (dropout,
exported_training.py:23), as in training
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.2)
        self.layer = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.layer(self.dropout(x))
        return scores.softmax(-1)


model = Classifier()
if "--fixed" in sys.argv:
    model.eval()
x = torch.randn(8, 16)
program = torch.export.export(model, (x,))
with tempfile.TemporaryDirectory() as folder:
    path = torch._inductor.aoti_compile_and_package(
        program,
        package_path=str(Path(folder) / "classifier.pt2"),
        inductor_configs={"aot_inductor.compile_wrapper_opt_level": "O0"},  # compiles in less time
    )
    serve = torch._inductor.aoti_load_package(path)
    print("equal" if torch.equal(serve(x), serve(x)) else "different")
