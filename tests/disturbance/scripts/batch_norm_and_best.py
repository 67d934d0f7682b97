"""Convolutions with every norm, dropout of each kind, validation in eval() and the best weights kept; frozen statistics."""

import copy
import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.b = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Hardswish(), nn.Dropout2d(0.2))
        self.c = nn.Sequential(nn.InstanceNorm2d(4, affine=True, track_running_stats=True), nn.AlphaDropout(0.1))
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = self.a(x)
        h = h + self.b(h)
        h = self.c(h)
        return self.head(nn.functional.dropout(h.mean((2, 3)), 0.1, self.training))


net = Net()
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 2)
weights = torch.tensor([1.0, 2.0, 0.5])
valid = torch.randn(6, 1, 8, 8), torch.randint(0, 3, (6,))
best, patience = (float("inf"), {}), 2
for epoch in range(5):
    net.train()
    if epoch == 3:
        net.a[1].eval()
    for _ in range(2):
        x, y = torch.randn(4, 1, 8, 8), torch.randint(0, 3, (4,))
        loss = nn.functional.cross_entropy(net(x), y, weight=weights, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        opt.step()
    sched.step()
    net.eval()
    with torch.no_grad():
        logits = net(valid[0])
        value = nn.functional.cross_entropy(logits, valid[1]).item()
        accuracy = (logits.argmax(1) == valid[1]).float().mean().item()
    if value < best[0]:
        best = value, copy.deepcopy(net.state_dict())
    else:
        patience -= 1
    print(epoch, loss.item(), value, accuracy, sched.get_last_lr(), patience, net.a[1].running_mean.tolist())
    if not patience:
        break
net.load_state_dict(best[1])
net.eval()
print(best[0], net(valid[0]).argmax(1).tolist())
