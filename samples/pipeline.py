"""Pipeline parallel: each rank has some of the layers, and passes what they computed on to the next.

A batch is cut into parts. Forward, the stages send activations on; backward, they send gradients back. So every stage must
run to the end, or the others wait for it: gradviz needs `--continue`. Each rank shows the graph of its own stage.

--fault unused   The last stage has a layer that it does not use.

Try:
    torchrun --nproc-per-node 2 samples/pipeline.py
    torchrun --nproc-per-node 2 -m gradviz render samples/pipeline.py --continue -o pipeline.svg
    torchrun --nproc-per-node 2 -m gradviz check samples/pipeline.py --continue --rank 1 -- --fault unused
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

parser = argparse.ArgumentParser(description="Pipeline parallel training, right and wrong.")
parser.add_argument("--fault", choices=["none", "unused"], default="none")
arguments = parser.parse_args()

if "RANK" in os.environ:
    dist.init_process_group("gloo")
else:  # started as `python samples/pipeline.py`: one stage
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
rank, world = dist.get_rank(), dist.get_world_size()
is_last = rank == world - 1


class Part(nn.Module):
    """The layers of one stage."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        if arguments.fault == "unused" and is_last:
            self.forgotten = nn.Linear(8, 8)

    def forward(self, x):
        return self.layer(x).tanh()


torch.manual_seed(rank)
part = Part()
stage = PipelineStage(part, rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(part.parameters(), lr=0.1)

torch.manual_seed(0)
inputs, targets = torch.randn(8, 8), torch.zeros(8, 8)
for _ in range(3):
    losses = []
    optimizer.zero_grad()
    schedule.step(*[inputs] * (rank == 0), target=targets if is_last else None, losses=losses if is_last else None)
    optimizer.step()

if is_last:
    print(f"rank {rank}: loss {sum(loss.item() for loss in losses) / len(losses):.4f}")
assert part.layer.weight.grad is not None
dist.destroy_process_group()
