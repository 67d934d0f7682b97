"""Lightning: the trainer calls the module's training_step and backward."""

import logging
import warnings

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.spare = nn.Linear(4, 4)

    def training_step(self, batch, number):
        x, y = batch
        return nn.functional.mse_loss(self.body(x), y)

    def validation_step(self, batch, number):
        x, y = batch
        print("validation", nn.functional.mse_loss(self.body(x), y).item().hex())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main():
    lightning.seed_everything(0, verbose=False)
    x = torch.randn(64, 8)
    rows = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", num_sanity_val_steps=0, **quiet)
    model = Regression()
    trainer.fit(model, rows, rows)  # backward
    print("weight", model.body[0].weight.sum().item().hex())


main()
