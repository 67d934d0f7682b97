"""Ignite: an engine calls a step that its factory made."""

import torch
from ignite.engine import Events, create_supervised_trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
        self.spare = nn.Linear(4, 4)

    def forward(self, x):
        return self.body(x)


def main():
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    rows = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    net = Net()
    trainer = create_supervised_trainer(net, torch.optim.SGD(net.parameters(), lr=0.1), nn.MSELoss())
    trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda engine: print("loss", engine.state.output.hex()))
    trainer.run(rows, max_epochs=2)  # backward


main()
