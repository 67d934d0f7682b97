"""Packs and unpacks what is saved: counted, compressed, to disk, on the CPU, forbidden."""

import tempfile
import os
import torch
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.LayerNorm(6), nn.Linear(6, 2))
opt = torch.optim.SGD(net.parameters(), 0.1)
packed, unpacked = [], []


def pack(t):
    packed.append(tuple(t.shape))
    return t.to(torch.bfloat16) if t.is_floating_point() else t


def unpack(t):
    unpacked.append(tuple(t.shape))
    return t.float() if t.is_floating_point() else t


folder = tempfile.mkdtemp()


class Disk:
    written = 0

    def __init__(self, t):
        Disk.written += 1
        self.path = os.path.join(folder, f"{Disk.written}.pt")
        torch.save(t, self.path)

    def __del__(self):
        Disk.written -= 100
        os.remove(self.path)


for step in range(4):
    x = torch.randn(3, 4)
    with saved_tensors_hooks(pack, unpack):
        loss = net(x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item(), len(packed), len(unpacked), packed[-3:], unpacked[-3:])
    with saved_tensors_hooks(lambda t: Disk(t), lambda d: torch.load(d.path)):
        y = net(x).exp()
    y.sum().backward()
    del y
    with save_on_cpu(), saved_tensors_hooks(pack, unpack):
        z = net(x).exp()
    torch.autograd.grad(z.sum(), net[0].weight)
    print(Disk.written, len(packed), len(unpacked), len(os.listdir(folder)))
    del z
try:
    with disable_saved_tensors_hooks("not here"), saved_tensors_hooks(pack, unpack):
        net(x)
except RuntimeError as error:
    print(error)
one = net(x).exp()
print(one.grad_fn._saved_result.shape, [n for n in dir(one.grad_fn) if n.startswith("_saved")])
one.grad_fn._raw_saved_result.register_hooks(
    lambda t: (packed.append("raw"), t)[1], lambda t: (unpacked.append("raw"), t)[1]
)
one.sum().backward()
print(packed.count("raw"), unpacked.count("raw"))
del folder
