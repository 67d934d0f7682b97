"""Stochastic weight averaging, an exponential average, and batch norm that is refreshed afterwards."""

import copy
import torch
from torch import nn
from torch.optim.swa_utils import SWALR, AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8, momentum=None), nn.Dropout(0.1), nn.ReLU(), nn.Linear(8, 2))
swa, ema = AveragedModel(net), AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=2)
decay = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9)
sched = torch.optim.lr_scheduler.SequentialLR(opt, [warm, decay], milestones=[2])
swa_sched = SWALR(opt, swa_lr=0.02, anneal_epochs=2)
data = [(torch.randn(6, 4), torch.randint(0, 2, (6,))) for _ in range(3)]
crit = nn.CrossEntropyLoss(label_smoothing=0.1)


@torch.no_grad()
def evaluate(model):
    was = model.training
    model.eval()
    total = sum(crit(model(x), y).item() for x, y in data)
    model.train(was)
    return total


best = (float("inf"), None)
for epoch in range(4):
    for x, y in data:
        opt.zero_grad()
        crit(net(x), y).backward()
        opt.step()
        ema.update_parameters(net)
    if epoch >= 2:
        swa.update_parameters(net)
        swa_sched.step()
    else:
        sched.step()
    losses = [evaluate(m) for m in (net, ema, swa)]
    if losses[0] < best[0]:
        best = losses[0], copy.deepcopy(net.state_dict())
    print(epoch, losses, opt.param_groups[0]["lr"])
update_bn(data, swa)
print(evaluate(swa), best[0])
