"""Drawings shaped like autograd graphs of well-known networks, made without torch, for the layout tests and benchmarks."""

from __future__ import annotations

import numpy as np

from gradviz.layout import Drawing, LayoutFrame

CHARACTER, PADDING, HEIGHT = 7.0, 16.0, 22.0
TITLE_HEIGHT = 18.0


class Network:
    """Collects boxes and edges; a box is as wide as its text. Methods return the number of what they made."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.edges: list[tuple[int, int]] = []
        self.frame_of: list[int] = []
        self.frames: list[LayoutFrame] = []
        self.open = -1

    def box(self, text: str, *inputs: int) -> int:
        """A box below its inputs, in the frame that is open."""
        self.texts.append(text)
        self.frame_of.append(self.open)
        self.edges.extend((i, len(self.texts) - 1) for i in inputs)
        return len(self.texts) - 1

    def begin(self, title: str) -> None:
        """Open a frame inside the one that is open."""
        self.frames.append(LayoutFrame(None if self.open < 0 else self.open, CHARACTER * len(title), TITLE_HEIGHT))
        self.open = len(self.frames) - 1

    def end(self) -> None:
        """Close the innermost open frame."""
        parent = self.frames[self.open].parent
        self.open = -1 if parent is None else parent

    def linear(self, x: int, name: str) -> int:
        """The nodes of nn.Linear."""
        self.begin(f"{name}: Linear")
        weight = self.box("TBackward0", self.box(f"{name}.weight (768, 768)"))
        out = self.box("AddmmBackward0", self.box(f"{name}.bias (768)"), x, weight)
        self.end()
        return out

    def norm(self, x: int, name: str, op: str = "NativeLayerNormBackward0") -> int:
        """The nodes of a normalization with weight and bias."""
        self.begin(f"{name}: Norm")
        out = self.box(op, x, self.box(f"{name}.weight (768)"), self.box(f"{name}.bias (768)"))
        self.end()
        return out

    def drawing(self, frames: bool = False) -> Drawing:
        """What was collected, with or without its frames."""
        n = len(self.texts)
        return Drawing(
            widths=np.array([CHARACTER * len(text) + PADDING for text in self.texts]),
            heights=np.full(n, HEIGHT),
            edges=np.array(self.edges, np.int64).reshape(-1, 2),
            frame_of=np.array(self.frame_of, np.int64) if frames else np.full(n, -1, np.int64),
            frames=tuple(self.frames) if frames else (),
        )


def gpt(blocks: int) -> Network:
    """Stacked transformer blocks: two residual branches each, attention with three ways side by side."""
    net = Network()
    x = net.box("EmbeddingBackward0", net.box("wte.weight (50257, 768)"))
    for i in range(blocks):
        net.begin(f"h.{i}: Block")
        h = net.norm(x, f"h.{i}.ln_1")
        net.begin(f"h.{i}.attn: Attention")
        split = net.box("SplitBackward0", net.linear(h, f"h.{i}.attn.c_attn"))
        heads = [net.box("TransposeBackward0", net.box("ViewBackward0", split)) for _ in range(3)]
        mixed = net.box("ViewBackward0", net.box("ScaledDotProductAttentionBackward0", *heads))
        out = net.linear(mixed, f"h.{i}.attn.c_proj")
        net.end()
        x = net.box("AddBackward0", x, out)
        h = net.norm(x, f"h.{i}.ln_2")
        net.begin(f"h.{i}.mlp: MLP")
        h = net.linear(net.box("GeluBackward0", net.linear(h, f"h.{i}.mlp.c_fc")), f"h.{i}.mlp.c_proj")
        net.end()
        x = net.box("AddBackward0", x, h)
        net.end()
    net.box("NllLossBackward0", net.box("LogSoftmaxBackward0", net.linear(net.norm(x, "ln_f"), "lm_head")))
    return net


def lstm(steps: int, layers: int = 2) -> Network:
    """An unrolled LSTM: two state streams per layer through all steps, a leaf for every use of a parameter."""
    net = Network()
    hidden = [net.box("h0 (4, 64)") for _ in range(layers)]
    cell = [net.box("c0 (4, 64)") for _ in range(layers)]
    outs = []
    for t in range(steps):
        net.begin(f"step {t}")
        x = net.box("SelectBackward0", net.box(f"x[{t}]"))
        for k in range(layers):
            net.begin(f"cell.{k}: LSTMCell")
            hidden[k], cell[k] = _lstm_cell(net, x, hidden[k], cell[k], k)
            net.end()
            x = hidden[k]
        net.end()
        outs.append(x)
    net.box("MeanBackward0", net.linear(outs[-1], "head"))
    return net


def _lstm_cell(net: Network, x: int, hidden: int, cell: int, k: int) -> tuple[int, int]:
    from_x = net.box("AddmmBackward0", net.box(f"bias_ih_l{k}"), x, net.box("TBackward0", net.box(f"weight_ih_l{k}")))
    from_h = net.box(
        "AddmmBackward0", net.box(f"bias_hh_l{k}"), hidden, net.box("TBackward0", net.box(f"weight_hh_l{k}"))
    )
    gates = net.box("SplitBackward0", net.box("AddBackward0", from_x, from_h))
    i, f, o = (net.box("SigmoidBackward0", gates) for _ in range(3))
    g = net.box("TanhBackward0", gates)
    new_cell = net.box("AddBackward0", net.box("MulBackward0", f, cell), net.box("MulBackward0", i, g))
    return net.box("MulBackward0", o, net.box("TanhBackward0", new_cell)), new_cell


def resnet(blocks: int) -> Network:
    """Residual blocks; every third has a convolution in its skip."""
    net = Network()
    x = net.norm(conv(net, net.box("input (1, 3, 224, 224)"), "conv1"), "bn1", "NativeBatchNormBackward0")
    for i in range(blocks):
        net.begin(f"layer.{i}: Bottleneck")
        h = x
        for k in range(3):
            h = net.norm(conv(net, h, f"layer.{i}.conv{k}"), f"layer.{i}.bn{k}", "NativeBatchNormBackward0")
            if k < 2:
                h = net.box("ReluBackward0", h)
        if i % 3 == 0:
            net.begin(f"layer.{i}.downsample: Sequential")
            x = net.norm(conv(net, x, f"layer.{i}.down.0"), f"layer.{i}.down.1", "NativeBatchNormBackward0")
            net.end()
        x = net.box("ReluBackward0", net.box("AddBackward0", h, x))
        net.end()
    net.linear(net.box("ViewBackward0", net.box("MeanBackward1", x)), "fc")
    return net


def conv(net: Network, x: int, name: str) -> int:
    """The nodes of nn.Conv2d without a bias."""
    net.begin(f"{name}: Conv2d")
    out = net.box("ConvolutionBackward0", x, net.box(f"{name}.weight (64, 64, 3, 3)"))
    net.end()
    return out


def plain(count: int, edges: object, width: float = 60.0, height: float = 22.0) -> Drawing:
    """Boxes of one size."""
    return Drawing(
        widths=np.full(count, width),
        heights=np.full(count, height),
        edges=np.asarray(edges, np.int64).reshape(-1, 2),
        frame_of=np.full(count, -1, np.int64),
    )
