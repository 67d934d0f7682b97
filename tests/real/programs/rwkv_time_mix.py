"""RWKV-v4-like language model: time mixing as a loop over positions, channel mixing, no attention."""

import types

import torch
import torch.nn as nn
from torch.nn import functional as F

T_MAX, n_embd, n_layer, vocab = 10, 12, 2, 32


class RWKV_TimeMix(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.layer_id = layer_id
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.time_decay = nn.Parameter(torch.linspace(-5, 3, n_embd))
        self.time_first = nn.Parameter(torch.ones(n_embd) * 0.3)
        self.time_mix_k = nn.Parameter(torch.rand(1, 1, n_embd))
        self.time_mix_v = nn.Parameter(torch.rand(1, 1, n_embd))
        self.time_mix_r = nn.Parameter(torch.rand(1, 1, n_embd))
        self.key = nn.Linear(n_embd, n_embd, bias=False)
        self.value = nn.Linear(n_embd, n_embd, bias=False)
        self.receptance = nn.Linear(n_embd, n_embd, bias=False)
        self.output = nn.Linear(n_embd, n_embd, bias=False)

    def wkv(self, w, u, k, v):
        w = -torch.exp(w)
        aa = bb = torch.zeros_like(k[:, 0])
        pp = torch.full_like(aa, -1e38)
        out = []
        for t in range(k.shape[1]):
            kk, vv = k[:, t], v[:, t]
            ww = u + kk
            p = torch.maximum(pp, ww)
            e1, e2 = torch.exp(pp - p), torch.exp(ww - p)
            out.append((e1 * aa + e2 * vv) / (e1 * bb + e2))
            ww = w + pp
            p = torch.maximum(ww, kk)
            e1, e2 = torch.exp(ww - p), torch.exp(kk - p)
            aa, bb, pp = e1 * aa + e2 * vv, e1 * bb + e2, p
        return torch.stack(out, 1)

    def forward(self, x):
        xx = self.time_shift(x)
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xv = x * self.time_mix_v + xx * (1 - self.time_mix_v)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        k, v, r = self.key(xk), self.value(xv), self.receptance(xr)
        return self.output(torch.sigmoid(r) * self.wkv(self.time_decay, self.time_first, k, v))


class RWKV_ChannelMix(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.time_mix_k = nn.Parameter(torch.rand(1, 1, n_embd))
        self.time_mix_r = nn.Parameter(torch.rand(1, 1, n_embd))
        self.key = nn.Linear(n_embd, 2 * n_embd, bias=False)
        self.receptance = nn.Linear(n_embd, n_embd, bias=False)
        self.value = nn.Linear(2 * n_embd, n_embd, bias=False)

    def forward(self, x):
        xx = self.time_shift(x)
        xk = x * self.time_mix_k + xx * (1 - self.time_mix_k)
        xr = x * self.time_mix_r + xx * (1 - self.time_mix_r)
        k = torch.square(torch.relu(self.key(xk)))
        return torch.sigmoid(self.receptance(xr)) * self.value(k)


class Block(nn.Module):
    def __init__(self, config, layer_id):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        if layer_id == 0:
            self.ln0 = nn.LayerNorm(n_embd)
        self.att, self.ffn = RWKV_TimeMix(config, layer_id), RWKV_ChannelMix(config, layer_id)

    def forward(self, x):
        if hasattr(self, "ln0"):
            x = self.ln0(x)
        x = x + self.att(self.ln1(x))
        return x + self.ffn(self.ln2(x))


class RWKV(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.emb = nn.Embedding(vocab, n_embd)
        self.blocks = nn.Sequential(*[Block(config, i) for i in range(n_layer)])
        self.ln_out, self.head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx, targets):
        x = self.head(self.ln_out(self.blocks(self.emb(idx))))
        return F.cross_entropy(x.view(-1, vocab), targets.reshape(-1))


model = RWKV(types.SimpleNamespace(ctx_len=T_MAX))
opt = torch.optim.Adam(model.parameters(), lr=8e-4)
for i in range(3):
    d = torch.randint(0, vocab, (2, T_MAX + 1))
    loss = model(d[:, :-1], d[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(i, loss.item())
