"""EfficientNet-like: MBConv with squeeze-and-excitation and stochastic depth."""

import torch
from torch import nn


class ConvBNAct(nn.Sequential):
    def __init__(self, cin, cout, k=3, stride=1, groups=1, act=True):
        super().__init__(
            nn.Conv2d(cin, cout, k, stride, k // 2, groups=groups, bias=False),
            nn.BatchNorm2d(cout),
            nn.SiLU(inplace=True) if act else nn.Identity(),
        )


class SqueezeExcite(nn.Module):
    def __init__(self, c, r):
        super().__init__()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.reduce, self.expand = nn.Conv2d(c, r, 1), nn.Conv2d(r, c, 1)

    def forward(self, x):
        s = torch.sigmoid(self.expand(nn.functional.silu(self.reduce(self.pool(x)))))
        return x * s


def drop_path(x, p, training):
    if not training or p == 0.0:
        return x
    keep = torch.rand(x.shape[0], 1, 1, 1) > p
    return x * keep / (1 - p)


class MBConv(nn.Module):
    def __init__(self, cin, cout, expand, k, stride, p):
        super().__init__()
        mid = cin * expand
        self.use_res = stride == 1 and cin == cout
        layers = [] if expand == 1 else [ConvBNAct(cin, mid, 1)]
        layers += [
            ConvBNAct(mid, mid, k, stride, groups=mid),
            SqueezeExcite(mid, max(1, cin // 4)),
            ConvBNAct(mid, cout, 1, act=False),
        ]
        self.block = nn.Sequential(*layers)
        self.p = p

    def forward(self, x):
        out = self.block(x)
        return x + drop_path(out, self.p, self.training) if self.use_res else out


class EfficientNet(nn.Module):
    settings = [(1, 8, 1, 3, 1), (4, 12, 2, 3, 2), (4, 16, 2, 5, 2), (4, 24, 2, 3, 1), (4, 32, 2, 5, 2)]

    def __init__(self, num_classes=10):
        super().__init__()
        c = 8
        features = [ConvBNAct(3, c, stride=2)]
        total, done = sum(s[2] for s in self.settings), 0
        for expand, cout, n, k, stride in self.settings:
            stage = []
            for i in range(n):
                stage.append(MBConv(c, cout, expand, k, stride if i == 0 else 1, 0.2 * done / total))
                c, done = cout, done + 1
            features.append(nn.Sequential(*stage))
        features.append(ConvBNAct(c, 64, 1))
        self.features = nn.Sequential(*features)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2, inplace=True), nn.Linear(64, num_classes))

    def forward(self, x):
        return self.classifier(self.avgpool(self.features(x)).flatten(1))


net = EfficientNet()
ema = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999))
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3, momentum=0.9)
for it in range(3):
    x, y = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
    opt.zero_grad()
    loss.backward()
    opt.step()
    ema.update_parameters(net)
    print(f"[{it}] {loss.item():.3f}")
