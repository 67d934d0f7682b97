# same-or-different head on |f(a) - f(b)|
import torch
from torch import nn

torch.manual_seed(0)


def conv_block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.BatchNorm2d(cout), nn.ReLU(), nn.MaxPool2d(2))


net = nn.Sequential(
    conv_block(1, 8), conv_block(8, 16), conv_block(16, 16), nn.Flatten(), nn.Linear(16 * 9, 32), nn.Tanh()
)
head = nn.Linear(32, 1)
opt = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=1e-2, momentum=0.9)

for step in range(4):
    a, b = torch.rand(6, 1, 28, 28), torch.rand(6, 1, 28, 28)
    same = torch.randint(0, 2, (6, 1)).float()
    b = torch.where(same.view(-1, 1, 1, 1) > 0, a, b)
    logits = head(torch.abs(net(a) - net(b)))
    loss = nn.functional.binary_cross_entropy_with_logits(logits, same)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, round(loss.item(), 4))
