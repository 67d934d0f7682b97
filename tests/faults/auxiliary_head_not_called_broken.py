import torch
from torch import nn


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.LSTM(4, 6, batch_first=True)
        self.tags = nn.Linear(6, 5)
        self.length = nn.Linear(6, 1)

    def forward(self, x):
        hidden, _ = self.body(x)
        return self.tags(hidden), hidden.mean(dim=-1)


torch.manual_seed(0)
tagger = Tagger()
optimizer = torch.optim.Adam(tagger.parameters())
for step in range(4):
    tags, length = tagger(torch.randn(2, 7, 4))
    loss = tags.square().mean() + length.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
