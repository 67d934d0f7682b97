"""Parametrizations: spectral norm in a discriminator, weight norm in a TCN, orthogonal in an RNN, one by hand."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal, spectral_norm, weight_norm


class Symmetric(nn.Module):
    def forward(self, X):
        return X.triu() + X.triu(1).transpose(-1, -2)


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation, dropout=0.2):
        super(TemporalBlock, self).__init__()
        padding = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(nn.Conv1d(n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.conv2 = weight_norm(nn.Conv1d(n_outputs, n_outputs, kernel_size, padding=padding, dilation=dilation))
        self.net = nn.Sequential(
            self.conv1, Chomp1d(padding), nn.ReLU(), nn.Dropout(dropout), self.conv2, Chomp1d(padding), nn.ReLU()
        )
        self.downsample = nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tcn = nn.Sequential(TemporalBlock(4, 8, 3, 1), TemporalBlock(8, 8, 3, 2), TemporalBlock(8, 8, 3, 4))
        self.cell = nn.RNNCell(8, 8)
        orthogonal(self.cell, "weight_hh")
        self.mix = nn.Linear(8, 8)
        parametrize.register_parametrization(self.mix, "weight", Symmetric())
        self.disc = nn.Sequential(spectral_norm(nn.Linear(8, 16)), nn.LeakyReLU(0.2), spectral_norm(nn.Linear(16, 1)))

    def forward(self, x):
        seq = self.tcn(x).permute(2, 0, 1)
        h = torch.zeros(x.shape[0], 8)
        for t in range(seq.shape[0]):
            h = self.cell(seq[t], h)
        return self.disc(self.mix(h))


torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(3):
    loss = F.softplus(-net(torch.randn(4, 4, 12))).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
