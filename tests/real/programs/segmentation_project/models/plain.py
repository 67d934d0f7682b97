import torch.nn as nn


class PlainNet(nn.Sequential):
    def __init__(self, num_classes=3):
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, num_classes, 1))

    def forward(self, x):
        return {"out": super().forward(x)}
