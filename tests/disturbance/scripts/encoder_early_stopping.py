"""Sentence classifier with padding; keeps the best checkpoint and stops when validation gets worse."""

import copy
import random
import numpy as np
import torch
from torch import nn

random.seed(1)
np.random.seed(1)
torch.manual_seed(1)


class Classifier(nn.Module):
    def __init__(self, vocab=40, d=16):
        super().__init__()
        self.embed = nn.Embedding(vocab, d, padding_idx=0)
        layer = nn.TransformerEncoderLayer(d, 4, 32, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(d, 3)

    def forward(self, tokens):
        mask = tokens == 0
        h = self.encoder(self.embed(tokens), src_key_padding_mask=mask)
        return self.head(h[:, 0])


def batch(n):
    rows = torch.zeros(n, 10, dtype=torch.long)
    for row in rows:
        length = random.randint(3, 10)
        row[:length] = torch.randint(1, 40, (length,))
    return rows, rows[:, 0] % 3


model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
val_x, val_y = batch(16)
best, best_state, bad, history = float("inf"), None, 0, []
for epoch in range(5):
    model.train()
    for _ in range(2):
        x, y = batch(8)
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        out = model(val_x)
        val = nn.functional.cross_entropy(out, val_y).item()
    sched.step(val)
    history.append((loss.item(), val))
    print(f"epoch {epoch} train {loss.item()!r} val {val!r} lr {opt.param_groups[0]['lr']}")
    if val < best:
        best, best_state, bad = val, copy.deepcopy(model.state_dict()), 0
    else:
        bad += 1
        if bad == 2:
            print("stop early")
            break
model.load_state_dict(best_state)
print("best", repr(best))
