"""Data parallel: every rank has the whole model and a part of the data, and gradients are averaged.

`DistributedDataParallel` averages a gradient as soon as it is there on every rank. So all ranks must use the same
parameters.

--fault branch   The last rank skips a layer. The others wait for its gradient for ever.

Try:
    torchrun --nproc-per-node 2 samples/ddp.py
    torchrun --nproc-per-node 2 -m gradviz render samples/ddp.py -o ddp.json -- --fault branch
    gradviz merge ddp.rank*.json -o ddp.svg
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser(description="Data parallel training, right and wrong.")
parser.add_argument("--fault", choices=["none", "branch"], default="none")
arguments = parser.parse_args()


class Model(nn.Module):
    """Three layers, of which the second may be skipped."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        x = self.first(x).relu()
        if arguments.fault == "branch" and is_last:
            x = x * 2
        else:
            x = self.second(x)
        return self.last(x)


if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:  # started as `python samples/ddp.py`: one rank
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
is_last = dist.get_rank() == dist.get_world_size() - 1

torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(Model())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())  # each rank has its own data

for _ in range(3):
    inputs, targets = torch.randn(16, 8), torch.randn(16, 1)
    scale = inputs.abs().max()
    dist.all_reduce(scale, op=dist.ReduceOp.MAX)  # the largest number of all ranks
    loss = (model(inputs / scale) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

same = [parameter.detach().clone() for parameter in model.parameters()]
for parameter in same:
    dist.all_reduce(parameter)
assert all(torch.allclose(a, b / dist.get_world_size()) for a, b in zip(model.parameters(), same))
print(f"rank {dist.get_rank()}: loss {loss.item():.4f}, and the same parameters as every rank")
dist.destroy_process_group()
