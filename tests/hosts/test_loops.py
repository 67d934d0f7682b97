"""The loops of docs/hosts.md, run with the library that each is for: what they say of a right model and of a faulty one."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.blocks import ROOT, blocks
from tests.cli.scripts import python

pytestmark = pytest.mark.slow

SHOWN = [block.text for block in blocks((ROOT / "docs" / "hosts.md").read_text()) if block.language == "python"]

BEGIN = """
import torch
from torch import nn
torch.manual_seed(0)
rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
        self.spare = nn.Linear(4, 4)
    def forward(self, x):
        return self.head(self.body(x).relu())
"""
SPARE = "        self.spare = nn.Linear(4, 4)\n"


class Loop(NamedTuple):
    """What has to be installed, what comes before the block of the page, and what runs it."""

    packages: tuple[str, ...]
    before: str
    after: str


LOOPS = {
    "lightning": Loop(
        ("lightning",),
        f"""{BEGIN}
import lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
{SPARE}
    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.mse_loss(self.head(self.body(x).relu()), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
""",
        """
quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
lightning.Trainer(max_epochs=2, accelerator="cpu", **quiet).fit(Checked(), rows)
""",
    ),
    "transformers": Loop(
        ("transformers", "accelerate"),
        f"""{BEGIN}{NET}
from transformers import TrainingArguments
class Scored(Net):
    def forward(self, x, labels):
        scores = super().forward(x)
        return {{"loss": nn.functional.mse_loss(scores, labels), "logits": scores}}
data = [{{"x": x, "labels": y}} for x, y in rows.dataset]
""",
        """
quiet = dict(report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no")
Checked(model=Scored(), args=TrainingArguments("out", max_steps=6, use_cpu=True, **quiet), train_dataset=data).train()
""",
    ),
    "ignite": Loop(
        ("ignite",),
        f"""{BEGIN}{NET}
model, loss_function = Net(), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
""",
        "trainer.run(rows, max_epochs=2)\n",
    ),
    "skorch": Loop(
        ("skorch",),
        f"""{BEGIN}{NET}
class Chances(Net):
    def forward(self, x):
        score = super().forward(x)
        return torch.cat([score, -score], dim=1).softmax(1)
""",
        """
x = torch.randn(32, 4).numpy()
Checked(Chances, max_epochs=2, lr=0.1, verbose=0).fit(x, (x.sum(1) > 0).astype("int64"))
""",
    ),
}


def test_the_page_shows_each_loop() -> None:
    assert len(SHOWN) == len(LOOPS)


@pytest.mark.parametrize("spare", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_the_first_step_is_checked_and_drawn(name: str, spare: bool, tmp_path: Path) -> None:
    loop, shown = LOOPS[name], SHOWN[list(LOOPS).index(name)]
    missing = [package for package in loop.packages if find_spec(package) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed: pip install .[test-hosts]")

    before = loop.before if spare else loop.before.replace(SPARE, "")
    (tmp_path / "train.py").write_text(f"{before}\n{shown}\n{loop.after}")
    run = python(tmp_path / "train.py", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("Ran ") == 1  # the report of one step
    assert ("[unused-parameter]" in run.stdout) == spare, run.stdout
    if spare:
        assert "spare.weight" in run.stdout and "self.spare = nn.Linear(4, 4)" in run.stdout
    else:
        assert "warning" not in run.stdout and "error" not in run.stdout
    if "step.svg" in shown:
        picture = (tmp_path / "step.svg").read_text()
        assert "body" in picture and "head" in picture
