"""Fully sharded data parallel (FSDP2): each rank holds a part of every parameter.

A layer's parameters are gathered from all ranks before it runs, and freed afterwards. The graph holds the gathered ones;
gradients, optimizer state and `model.parameters()` are the parts that this rank holds.

--fault early   The optimizer is made before `fully_shard`. It holds the parameters that were replaced, and updates nothing.

Try:
    torchrun --nproc-per-node 2 samples/fsdp.py
    torchrun --nproc-per-node 2 -m gradviz tree samples/fsdp.py --by node
    torchrun --nproc-per-node 2 -m gradviz check samples/fsdp.py -- --fault early
    torchrun --nproc-per-node 2 -m gradviz render samples/fsdp.py --at 2 -o fsdp.json
    gradviz merge fsdp.rank*.json
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser(description="Fully sharded data parallel training, right and wrong.")
parser.add_argument("--fault", choices=["none", "early"], default="none")
arguments = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:  # started as `python samples/fsdp.py`: one rank
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
if arguments.fault == "early":
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
for layer in (model[0], model[2], model[4], model):
    fully_shard(layer, mesh=mesh)
if arguments.fault == "none":
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())  # each rank has its own data

inputs, targets = torch.randn(16, 8), torch.randn(16, 1)
losses = []
for _ in range(10):
    loss = (model(inputs) - targets).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

held = sum(parameter.to_local().numel() for parameter in model.parameters())
assert arguments.fault == "early" or losses[-1] < losses[0]
print(f"rank {dist.get_rank()}: loss {losses[0]:.4f} to {losses[-1]:.4f}, holds {held} elements of the parameters")
dist.destroy_process_group()
