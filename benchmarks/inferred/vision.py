"""Networks that look at pictures."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.inferred.case import Case, summed


class BasicBlock(nn.Module):
    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample: nn.Module | None = None
        if stride != 1 or inside != out:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.downsample is not None:
            identity = self.downsample(x)
        y += identity
        return self.relu(y)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """Functional activations, as many write them."""

    def __init__(self, inside: int, out: int, stride: int) -> None:
        super().__init__()
        middle = out // 4
        self.conv1 = nn.Conv2d(inside, middle, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(middle)
        self.conv2 = nn.Conv2d(middle, middle, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(middle)
        self.conv3 = nn.Conv2d(middle, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or inside != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return F.relu(y)


class ResNet(nn.Module):
    def __init__(self, block: Any, layers: tuple[int, ...]) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        width = 8
        for i, count in enumerate(layers):
            blocks = []
            for j in range(count):
                blocks.append(block(width, 8 * 2**i, 2 if i and not j else 1))
                width = 8 * 2**i
            setattr(self, f"layer{i + 1}", nn.Sequential(*blocks))
        self.layers = len(layers)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for i in range(self.layers):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


class ConvNeXtBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.dwconv = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.pwconv1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.pwconv2 = nn.Linear(4 * width, width)
        self.gamma = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        y = self.dwconv(x).permute(0, 2, 3, 1)
        y = self.pwconv2(self.act(self.pwconv1(self.norm(y))))
        return x + (self.gamma * y).permute(0, 3, 1, 2)  # type: ignore[no-any-return]


class ChannelNorm(nn.Module):
    """Layer norm over channels, op by op."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)
        spread = (x - mean).pow(2).mean(1, keepdim=True)
        x = (x - mean) / torch.sqrt(spread + 1e-6)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.downsample_layers = nn.ModuleList(
            [nn.Sequential(nn.Conv2d(3, 8, 4, 4), ChannelNorm(8))]
        )
        self.downsample_layers.append(
            nn.Sequential(ChannelNorm(8), nn.Conv2d(8, 16, 2, 2))
        )
        self.stages = nn.ModuleList(
            nn.Sequential(*(ConvNeXtBlock(width) for _ in range(2)))
            for width in (8, 16)
        )
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        for down, stage in zip(self.downsample_layers, self.stages):
            x = stage(down(x))
        return self.head(self.norm(x.mean([-2, -1])))  # type: ignore[no-any-return]


class WindowAttention(nn.Module):
    def __init__(self, width: int, heads: int, window: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.bias_table = nn.Parameter(torch.zeros(window * window, heads))
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(n, length, 3, self.heads, width // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        scores = (q * self.scale) @ k.transpose(-2, -1)
        scores = scores + self.bias_table[:length].t().unsqueeze(1)
        x = (self.softmax(scores) @ v).transpose(1, 2).reshape(n, length, width)
        return self.proj(x)  # type: ignore[no-any-return]


class SwinBlock(nn.Module):
    def __init__(self, width: int, shift: int, window: int = 4) -> None:
        super().__init__()
        self.shift, self.window = shift, window
        self.norm1 = nn.LayerNorm(width)
        self.attn = WindowAttention(width, 2, window)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Dropout(0.1),
            nn.Linear(4 * width, width),
        )

    def forward(self, x: Tensor) -> Tensor:
        n, h, w, c = x.shape
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = y.view(
            n, h // self.window, self.window, w // self.window, self.window, c
        ).permute(0, 1, 3, 2, 4, 5)
        y = self.attn(y.reshape(-1, self.window**2, c))
        y = y.view(
            n, h // self.window, w // self.window, self.window, self.window, c
        ).permute(0, 1, 3, 2, 4, 5)
        y = y.reshape(n, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))  # type: ignore[no-any-return]


class PatchMerging(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * width)
        self.reduction = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
        return self.reduction(self.norm(torch.cat(parts, -1)))  # type: ignore[no-any-return]


class Swin(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 2, 2)
        layers: list[nn.Module] = []
        for width in (8, 16):
            layers += [nn.Sequential(SwinBlock(width, 0), SwinBlock(width, 2))]
            layers += [PatchMerging(width)] if width == 8 else []
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.layers(self.patch_embed(x).permute(0, 2, 3, 1)))
        return self.head(x.mean((1, 2)))  # type: ignore[no-any-return]


class ConvNormAct(nn.Sequential):
    def __init__(
        self, inside: int, out: int, kernel: int, groups: int = 1, act: bool = True
    ) -> None:
        parts: list[nn.Module] = [
            nn.Conv2d(
                inside, out, kernel, padding=kernel // 2, groups=groups, bias=False
            )
        ]
        super().__init__(*parts, nn.BatchNorm2d(out), *([nn.SiLU()] if act else []))


class SqueezeExcite(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(width, 4, 1)
        self.fc2 = nn.Conv2d(4, width, 1)
        self.activation = nn.SiLU()
        self.scale_activation = nn.Sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        scale = self.fc2(self.activation(self.fc1(self.avgpool(x))))
        return self.scale_activation(scale) * x  # type: ignore[no-any-return]


class MBConv(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        wide = 4 * width
        self.block = nn.Sequential(
            ConvNormAct(width, wide, 1),
            ConvNormAct(wide, wide, 3, groups=wide),
            SqueezeExcite(wide),
            ConvNormAct(wide, width, 1, act=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.block(x)  # type: ignore[no-any-return]


class EfficientNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            ConvNormAct(3, 8, 3), *(MBConv(8) for _ in range(3)), ConvNormAct(8, 16, 1)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(16, 10))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))  # type: ignore[no-any-return]


class DoubleConv(nn.Module):
    def __init__(self, inside: int, out: int) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(inside, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
            nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)  # type: ignore[no-any-return]


class UNet(nn.Module):
    def __init__(self, widths: tuple[int, ...] = (4, 8, 16)) -> None:
        super().__init__()
        self.downs = nn.ModuleList(
            DoubleConv(a, b) for a, b in zip((3, *widths), widths)
        )
        self.pool = nn.MaxPool2d(2)
        self.bottom = DoubleConv(widths[-1], 2 * widths[-1])
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(2 * a, a, 2, 2) for a in reversed(widths)
        )
        self.convs = nn.ModuleList(DoubleConv(2 * a, a) for a in reversed(widths))
        self.out = nn.Conv2d(widths[0], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.downs:
            x = down(x)
            skips.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for up, conv, skip in zip(self.ups, self.convs, reversed(skips)):
            x = conv(torch.cat([skip, up(x)], dim=1))
        return self.out(x)  # type: ignore[no-any-return]


class DenseLayer(nn.Module):
    def __init__(self, width: int, growth: int) -> None:
        super().__init__()
        self.norm1, self.relu1 = nn.BatchNorm2d(width), nn.ReLU()
        self.conv1 = nn.Conv2d(width, 2 * growth, 1, bias=False)
        self.norm2, self.relu2 = nn.BatchNorm2d(2 * growth), nn.ReLU()
        self.conv2 = nn.Conv2d(2 * growth, growth, 3, padding=1, bias=False)

    def forward(self, parts: list[Tensor]) -> Tensor:
        y = self.conv1(self.relu1(self.norm1(torch.cat(parts, 1))))
        return self.conv2(self.relu2(self.norm2(y)))  # type: ignore[no-any-return]


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList(DenseLayer(8 + 4 * i, 4) for i in range(6))
        self.norm = nn.BatchNorm2d(32)
        self.classifier = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.stem(x)]
        for layer in self.layers:
            parts.append(layer(parts))
        y = F.relu(self.norm(torch.cat(parts, 1)))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(y, (1, 1)), 1))  # type: ignore[no-any-return]


CASES: dict[str, Case] = {
    "ResNet, basic blocks": summed(
        lambda: ResNet(BasicBlock, (2, 2, 2, 2)), 2, 3, 64, 64
    ),
    "ResNet, bottlenecks": summed(
        lambda: ResNet(Bottleneck, (3, 4, 6, 3)), 2, 3, 64, 64
    ),
    "ConvNeXt": summed(ConvNeXt, 2, 3, 32, 32),
    "Swin": summed(Swin, 2, 3, 32, 32),
    "EfficientNet": summed(EfficientNet, 2, 3, 16, 16),
    "U-Net": summed(UNet, 2, 3, 16, 16),
    "DenseNet": summed(DenseNet, 2, 3, 8, 8),
}
