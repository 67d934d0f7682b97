"""Question: DistributedDataParallel says that parameters were not used: which, and why?

DDP waits for the gradient of every parameter. The auxiliary head runs, but its result never gets into the loss, so its
gradients never come: the second forward pass raises "Expected to have finished reduction in the prior iteration".

Try:
    gradviz check samples/questions/ddp_unused.py
"""

import torch
from torch import distributed, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x):
        features = self.body(x).tanh()
        extra = self.auxiliary(features)
        return self.head(features)


torch.manual_seed(0)
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
try:
    net = nn.parallel.DistributedDataParallel(Net())
    for step in range(2):
        loss = net(torch.randn(16, 8)).square().mean()
        print(f"step {step}: loss {loss.item():.3f}")
        loss.backward()
finally:
    distributed.destroy_process_group()
