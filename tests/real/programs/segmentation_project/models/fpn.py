from collections import OrderedDict

import torch.nn as nn
import torch.nn.functional as F


def conv_bn_relu(cin, cout, stride=1):
    return nn.Sequential(
        OrderedDict(
            conv=nn.Conv2d(cin, cout, 3, stride, 1, bias=False), bn=nn.BatchNorm2d(cout), relu=nn.ReLU(inplace=True)
        )
    )


class FPN(nn.Module):
    def __init__(self, num_classes=3, width=8):
        super().__init__()
        self.stem = conv_bn_relu(3, width)
        self.c2 = conv_bn_relu(width, width * 2, 2)
        self.c3 = conv_bn_relu(width * 2, width * 4, 2)
        self.lat2, self.lat3 = nn.Conv2d(width * 2, width, 1), nn.Conv2d(width * 4, width, 1)
        self.out, self.aux = nn.Conv2d(width, num_classes, 1), nn.Conv2d(width * 4, num_classes, 1)

    def forward(self, x):
        size = x.shape[-2:]
        p1 = self.stem(x)
        c2 = self.c2(p1)
        c3 = self.c3(c2)
        p2 = self.lat2(c2) + F.interpolate(self.lat3(c3), scale_factor=2.0)
        p1 = p1 + F.interpolate(p2, scale_factor=2.0)
        return {
            "out": self.out(p1),
            "aux": F.interpolate(self.aux(c3), size=size, mode="bilinear", align_corners=False),
        }
