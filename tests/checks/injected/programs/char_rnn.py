import torch
import torch.nn as nn


class CharRNN(nn.Module):
    def __init__(self, vocab, h):
        super().__init__()
        self.emb = nn.Embedding(vocab, h)
        self.rnn = nn.GRU(h, h, batch_first=True)
        self.out = nn.Linear(h, vocab)

    def forward(self, x, hidden):
        o, hidden = self.rnn(self.emb(x), hidden)
        return self.out(o), hidden


torch.manual_seed(0)
text = torch.randint(0, 12, (4, 401))
model = CharRNN(12, 24)
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
hidden = torch.zeros(1, 4, 24)
for i in range(0, 400, 20):
    x, y = text[:, i : i + 20], text[:, i + 1 : i + 21]
    hidden = hidden.detach()
    logits, hidden = model(x, hidden)
    loss = nn.functional.cross_entropy(logits.reshape(-1, 12), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
print("loss", loss.item())
