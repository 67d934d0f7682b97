"""DistributedDataParallel with one process and gloo, as a smoke test on a laptop."""

import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def setup(rank, world_size):
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "0")
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)


def cleanup():
    dist.destroy_process_group()


class ToyModel(nn.Module):
    def __init__(self):
        super(ToyModel, self).__init__()
        self.net1 = nn.Linear(10, 10)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(10, 5)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def demo_basic(rank, world_size):
    print(f"Running basic DDP example on rank {rank}.")
    setup(rank, world_size)
    try:
        ddp_model = DDP(ToyModel())
        loss_fn = nn.MSELoss()
        optimizer = torch.optim.SGD(ddp_model.parameters(), lr=0.001)
        for _ in range(3):
            optimizer.zero_grad()
            outputs = ddp_model(torch.randn(20, 10))
            labels = torch.randn(20, 5)
            loss_fn(outputs, labels).backward()
            optimizer.step()
        # what is left of the model after destroy_process_group may wait for its thread forever
        del ddp_model, optimizer
    finally:
        cleanup()


if __name__ == "__main__":
    demo_basic(int(os.environ.get("RANK", 0)), 1)
