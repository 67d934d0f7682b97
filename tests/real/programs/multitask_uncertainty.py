"""Shared encoder, three heads, losses weighed by learned uncertainties (Kendall et al.)."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Outputs:
    segmentation: torch.Tensor
    depth: torch.Tensor
    label: torch.Tensor


@dataclass
class Losses:
    segmentation: torch.Tensor
    depth: torch.Tensor
    label: torch.Tensor

    def __iter__(self):
        return (getattr(self, f.name) for f in fields(self))


class Encoder(nn.Module):
    def __init__(self, widths=(8, 16, 24)):
        super().__init__()
        chans = (3, *widths)
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.InstanceNorm2d(b, affine=True), nn.LeakyReLU(0.1))
            for a, b in zip(chans, chans[1:])
        )

    def forward(self, x):
        feats = []
        for s in self.stages:
            x = s(x)
            feats.append(x)
        return feats


class Decoder(nn.Module):
    def __init__(self, out, widths=(8, 16, 24)):
        super().__init__()
        self.lateral = nn.ModuleList(nn.Conv2d(w, 8, 1) for w in widths)
        self.smooth = nn.Conv2d(8, 8, 3, padding=1)
        self.final = nn.Conv2d(8, out, 1)

    def forward(self, feats):
        x = None
        for lateral, f in zip(reversed(self.lateral), reversed(feats)):
            y = lateral(f)
            x = y if x is None else y + F.interpolate(x, scale_factor=2, mode="nearest")
        return self.final(F.relu(self.smooth(x)))


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.heads = nn.ModuleDict({"segmentation": Decoder(5), "depth": Decoder(1)})
        self.classifier = nn.Linear(24, 4)
        self.log_vars = nn.Parameter(torch.zeros(3))

    def forward(self, image) -> Outputs:
        feats = self.encoder(image)
        return Outputs(
            self.heads["segmentation"](feats), self.heads["depth"](feats), self.classifier(feats[-1].mean((2, 3)))
        )


def compute_losses(out: Outputs, batch) -> Losses:
    return Losses(
        F.cross_entropy(out.segmentation, batch["mask"]),
        F.l1_loss(out.depth, batch["depth"]),
        F.cross_entropy(out.label, batch["label"]),
    )


def main():
    net = MultiTask()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(3):
        batch = {
            "image": torch.rand(2, 3, 32, 32),
            "mask": torch.randint(0, 5, (2, 16, 16)),
            "depth": torch.rand(2, 1, 16, 16),
            "label": torch.randint(0, 4, (2,)),
        }
        losses = compute_losses(net(batch["image"]), batch)
        total = sum(torch.exp(-s) * l + s for s, l in zip(net.log_vars, losses))
        opt.zero_grad()
        total.backward()
        opt.step()
        print(step, {f.name: round(getattr(losses, f.name).item(), 3) for f in fields(losses)})


if __name__ == "__main__":
    main()
