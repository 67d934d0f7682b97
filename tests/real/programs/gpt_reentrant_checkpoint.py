# the old kind of activation checkpointing, with torch.utils.checkpoint.checkpoint_sequential as well
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.ReLU(), nn.Linear(4 * d, d))
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)

    def forward(self, x):
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        a, _ = self.attn(x, x, x, attn_mask=later)
        x = self.n1(x + a)
        return self.n2(x + self.ff(x))


class Model(nn.Module):
    def __init__(self, vocab=30, d=12):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.bottom = nn.Sequential(Layer(d), Layer(d))
        self.top = nn.ModuleList([Layer(d), Layer(d)])
        self.out = nn.Linear(d, vocab)

    def forward(self, ids):
        x = self.emb(ids)
        x = checkpoint_sequential(self.bottom, 2, x, use_reentrant=True)
        for layer in self.top:
            x = checkpoint(layer, x, use_reentrant=True)
        return self.out(x)


model = Model()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(0, 30, (3, 9))
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("step", step, "loss", loss.item())
