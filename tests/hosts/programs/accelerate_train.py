"""Accelerate: a loop of one's own, with gradients that are accumulated."""

import torch
from accelerate import Accelerator
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
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = Net()
    x = torch.randn(64, 8)
    rows = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
    net, optimizer, rows = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1), rows)
    for _ in range(2):
        for x, y in rows:
            with accelerator.accumulate(net):
                loss = nn.functional.mse_loss(net(x), y)
                accelerator.backward(loss)  # backward
                optimizer.step()
                optimizer.zero_grad()
        print("loss", loss.item().hex())


main()
