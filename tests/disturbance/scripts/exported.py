"""torch.export of a model between steps of training, in both manners, run again and compared."""

import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.d = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x):
        return self.d(torch.relu(self.l(x))) * x.shape[1]


net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
x = torch.randn(3, 4)
for step, strict in enumerate((False, True, False)):
    opt.zero_grad()
    loss = net(x).sum()
    loss.backward()
    opt.step()
    try:
        program = torch.export.export(net.eval(), (x,), strict=strict)
        print(step, loss.item(), [n.name for n in program.graph.nodes])
        print(torch.equal(program.module()(x), net(x)))
    except Exception as error:
        print(step, type(error).__name__, str(error).splitlines()[0])
    net.train()
