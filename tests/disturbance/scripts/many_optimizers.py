"""Every kind of implementation that optimizers have: loops, foreach, fused, capturable, differentiable; groups that come later."""

import torch
from torch import nn

x = torch.linspace(-1, 1, 12).reshape(4, 3)
kinds = [
    (torch.optim.SGD, dict(lr=0.1, momentum=0.9, foreach=True)),
    (torch.optim.SGD, dict(lr=0.1, fused=True)),
    (torch.optim.Adam, dict(lr=0.01, foreach=False, amsgrad=True)),
    (torch.optim.Adam, dict(lr=torch.tensor(0.01), foreach=False)),
    (torch.optim.AdamW, dict(lr=0.01, fused=True)),
    (torch.optim.Adagrad, dict(lr=0.1)),
    (torch.optim.Adadelta, dict(lr=1.0, maximize=True)),
    (torch.optim.NAdam, dict(lr=0.01, decoupled_weight_decay=True)),
    (torch.optim.RAdam, dict(lr=0.01)),
    (torch.optim.Rprop, dict(lr=0.01)),
    (torch.optim.ASGD, dict(lr=0.01)),
    (torch.optim.Adamax, dict(lr=0.01, foreach=True)),
]
finals = {}
for number, (kind, options) in enumerate(kinds):
    torch.manual_seed(number)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    opt = kind(net[0].parameters(), **options)
    sched = torch.optim.lr_scheduler.MultiplicativeLR(opt, lambda epoch: 0.95)
    for step in range(3):
        if step == 1:
            opt.add_param_group({"params": net[2].parameters(), "lr": 0.02})
        loss = net(x).square().mean()
        opt.zero_grad(set_to_none=number % 2 == 0)
        loss.backward()
        opt.step()
        if step == 0:
            sched.step()
    finals[number] = opt.state_dict()
    print(
        kind.__name__,
        sorted(options),
        loss.item(),
        len(opt.param_groups),
        [g["lr"] if not torch.is_tensor(g["lr"]) else g["lr"].item() for g in opt.param_groups],
    )
w = torch.ones(2, requires_grad=True)
v = (w * 1).clone()
opt = torch.optim.SGD([v], lr=0.1, differentiable=True)
v.retain_grad()
v.grad = torch.ones(2)
opt.step()
v.sum().backward()
print(w.grad.tolist())
