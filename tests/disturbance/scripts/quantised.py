"""Quantisation aware training with own fake quantisation and torch's, then dynamic and static integers."""

import warnings
import torch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=UserWarning)

torch.manual_seed(0)


class FakeQuant(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        q = (x / scale).round().clamp(-8, 7)
        ctx.save_for_backward((x / scale).abs() <= 8)
        return q * scale

    @staticmethod
    def backward(ctx, g):
        (mask,) = ctx.saved_tensors
        return g * mask, None


class QLinear(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach().abs().max() / 7
        w = FakeQuant.apply(self.weight, scale)
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        return nn.functional.linear(x, w, self.bias)


net = nn.Sequential(QLinear(4, 8), nn.ReLU(), QLinear(8, 2))
opt = torch.optim.Adam(net.parameters(), 1e-2)
levels = []
for step in range(4):
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        q = torch.quantize_per_tensor(net[0].weight, 0.05, 0, torch.qint8)
        levels.append(int(q.int_repr().unique().numel()))
        ste = (net[0].weight.round() - net[0].weight).detach() + net[0].weight
    print(step, loss.item(), levels[-1], q.dequantize().sum().item(), ste.sum().item())
integers = torch._int_mm(torch.ones(32, 32, dtype=torch.int8), torch.ones(32, 32, dtype=torch.int8)).sum().item()
half = {k: v.half() for k, v in net.state_dict().items()}
print(integers, {k: v.sum().item() for k, v in half.items()})
