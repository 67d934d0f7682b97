import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, in_planes, growth_rate):
        super(Bottleneck, self).__init__()
        self.bn1 = nn.BatchNorm2d(in_planes)
        self.conv1 = nn.Conv2d(in_planes, 4 * growth_rate, kernel_size=1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth_rate)
        self.conv2 = nn.Conv2d(4 * growth_rate, growth_rate, kernel_size=3, padding=1, bias=False)

    def forward(self, x):
        out = self.conv1(F.relu(self.bn1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return torch.cat([out, x], 1)


class Transition(nn.Module):
    def __init__(self, in_planes, out_planes):
        super(Transition, self).__init__()
        self.bn = nn.BatchNorm2d(in_planes)
        self.conv = nn.Conv2d(in_planes, out_planes, kernel_size=1, bias=False)

    def forward(self, x):
        return F.avg_pool2d(self.conv(F.relu(self.bn(x))), 2)


class DenseNet(nn.Module):
    def __init__(self, nblocks, growth_rate=4, reduction=0.5, num_classes=10):
        super(DenseNet, self).__init__()
        num_planes = 2 * growth_rate
        self.conv1 = nn.Conv2d(3, num_planes, kernel_size=3, padding=1, bias=False)
        stages = []
        for i, n in enumerate(nblocks):
            stages.append(nn.Sequential(*[Bottleneck(num_planes + j * growth_rate, growth_rate) for j in range(n)]))
            num_planes += n * growth_rate
            if i < len(nblocks) - 1:
                out_planes = int(math.floor(num_planes * reduction))
                stages.append(Transition(num_planes, out_planes))
                num_planes = out_planes
        self.stages = nn.Sequential(*stages)
        self.bn = nn.BatchNorm2d(num_planes)
        self.linear = nn.Linear(num_planes, num_classes)

    def forward(self, x):
        out = self.stages(self.conv1(x))
        out = F.adaptive_avg_pool2d(F.relu(self.bn(out)), 1).flatten(1)
        return self.linear(out)


class DenseNetKeepsAll(nn.Module):
    """The torchvision way: every layer gets the list of all features before it."""

    def __init__(self, layers=10, growth=4):
        super().__init__()
        self.layers = nn.ModuleDict()
        for i in range(layers):
            self.layers[f"denselayer{i + 1}"] = nn.Sequential(
                nn.BatchNorm2d(8 + i * growth), nn.ReLU(), nn.Conv2d(8 + i * growth, growth, 3, padding=1)
            )

    def forward(self, init_features):
        features = [init_features]
        for layer in self.layers.values():
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)


def main():
    net = nn.Sequential(
        DenseNet([4, 6, 4], num_classes=8),
        nn.Unflatten(1, (8, 1, 1)),
        DenseNetKeepsAll(),
        nn.Flatten(),
        nn.Linear(48, 5),
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.05, nesterov=True, momentum=0.9)
    for _ in range(3):
        x, y = torch.randn(4, 3, 16, 16), torch.randint(0, 5, (4,))
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("loss", loss.item())


if __name__ == "__main__":
    main()
