"""The callbacks in the real Trainer of transformers and in Lightning; skipped where these are not installed."""

from __future__ import annotations

import sys
from pathlib import Path

import orjson
import pytest

from tests import python_processes

TRANSFORMERS = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from stepscope.integrations import TrainerCallback

class Data(torch.utils.data.Dataset):
    def __len__(self): return 24
    def __getitem__(self, index): return {"x": torch.ones(8) * index, "labels": torch.tensor(1.0)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.calls = torch.nn.Linear(8, 1), 0
        self.loss = torch.compile(lambda x, labels: ((self.layer(x).squeeze(-1) - labels) ** 2).mean())
    def forward(self, x, labels):
        self.calls += 1
        if "fail" in sys.argv and self.calls == 6:
            raise RuntimeError("it stopped here")
        return {"loss": self.loss(x, labels)}

settings = TrainingArguments(
    "unused", per_device_train_batch_size=4, gradient_accumulation_steps=2, num_train_epochs=1, report_to=[],
    use_cpu=True, save_strategy="no", disable_tqdm=True, dataloader_pin_memory=False,
)
Trainer(Model(), settings, train_dataset=Data(), callbacks=[TrainerCallback("out")]).train()
"""
LIGHTNING = """
import sys
import torch
import {package} as lightning
from stepscope.integrations import LightningCallback

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
        self.loss = torch.compile(lambda x: (self.layer(x) ** 2).mean())
    def training_step(self, batch, index):
        if "fail" in sys.argv and index == 5:
            raise RuntimeError("it stopped here")
        return self.loss(batch)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)

trainer = lightning.Trainer(
    max_epochs=1, accumulate_grad_batches=2, accelerator="cpu", callbacks=[LightningCallback("out")],
    enable_progress_bar=False, logger=False, enable_checkpointing=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(24, 8), batch_size=4))
"""
PROGRAMS = {
    "transformers": TRANSFORMERS,
    "lightning": LIGHTNING.replace("{package}", "lightning"),
    "pytorch_lightning": LIGHTNING.replace("{package}", "pytorch_lightning"),
}


@pytest.mark.ecosystem
@pytest.mark.parametrize("fails", [False, True], ids=["ends", "fails"])
@pytest.mark.parametrize("package", PROGRAMS)
def test_global_steps_and_the_report_of_a_failing_run(package: str, fails: bool, tmp_path: Path) -> None:
    pytest.importorskip(package)
    (tmp_path / "train.py").write_text(PROGRAMS[package])
    command = [sys.executable, "train.py", *(["fail"] if fails else [])]
    done = python_processes.run(command, cwd=tmp_path, alone=True)
    assert done.returncode == int(fails), done.stderr
    report = tmp_path / "out" / "report.html"
    assert report.is_file() == fails
    assert not fails or "RuntimeError: it stopped here" in report.read_text("utf-8")
    query = "select count(*) from steps where by_what = 'user'"
    answer = python_processes.run([sys.executable, "-m", "stepscope", "sql", "out", query, "--json"], cwd=tmp_path)
    assert orjson.loads(answer.stdout)["rows"] == [[3]], answer.stderr
