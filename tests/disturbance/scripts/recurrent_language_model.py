"""LSTM and GRU on packed sequences, state carried over and detached, gradients clipped, weights tied, cosine schedule."""

import math
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(5)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 12)
        self.lstm = nn.LSTM(12, 12, num_layers=2, dropout=0.2)
        self.gru = nn.GRU(12, 12, bidirectional=True)
        self.cell = nn.GRUCell(24, 12)
        self.dec = nn.Linear(12, 30, bias=False)
        self.dec.weight = self.emb.weight

    def forward(self, tokens, lengths, state=None):
        e = self.emb(tokens)
        h, state = self.lstm(e, state)
        packed, _ = self.gru(pack_padded_sequence(h, lengths, enforce_sorted=False))
        h, _ = pad_packed_sequence(packed, total_length=len(tokens))
        s = torch.zeros(tokens.shape[1], 12)
        outs = []
        for t in h:
            s = self.cell(t, s)
            outs.append(self.dec(s))
        return torch.stack(outs), state


model = Model()
opt = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9, nesterov=True)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.5, total_steps=8)
state, ppl = None, []
for step in range(4):
    tokens = torch.randint(0, 30, (6, 3))
    lengths = torch.tensor([6, 4, 5])
    logits, state = model(tokens, lengths, state)
    state = tuple(s.detach() for s in state)
    loss = nn.functional.cross_entropy(logits[:-1].flatten(0, 1), tokens[1:].flatten())
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    opt.step()
    sched.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.cross_entropy(model(tokens, lengths)[0].flatten(0, 1), tokens.flatten())
    model.train()
    ppl.append(math.exp(val.item()))
    print(step, loss.item(), norm.item(), ppl[-1], sched.get_last_lr())
