"""The model that `train.py` imports: a straight line."""

import torch
from torch import nn


class Line(nn.Module):
    """y = slope * x + intercept"""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.zeros(()))
        self.intercept = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return self.slope * x + self.intercept
