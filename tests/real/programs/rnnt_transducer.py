# RNN transducer with the loss written as a dynamic program in log space
import torch
import torch.nn as nn


class Transducer(nn.Module):
    def __init__(self, feats=8, vocab=6, hidden=16):
        super().__init__()
        self.encoder = nn.LSTM(feats, hidden, batch_first=True)
        self.embed = nn.Embedding(vocab, hidden)
        self.predictor = nn.LSTMCell(hidden, hidden)
        self.joiner = nn.Linear(hidden, vocab)

    def predict(self, targets):
        state, outs = None, []
        u = torch.zeros(targets.shape[0], dtype=torch.long)  # start symbol
        for k in range(targets.shape[1] + 1):
            state = self.predictor(self.embed(u), state)
            outs.append(state[0])
            if k < targets.shape[1]:
                u = targets[:, k]
        return torch.stack(outs, 1)

    def forward(self, x, targets):
        enc, _ = self.encoder(x)
        dec = self.predict(targets)
        return self.joiner(torch.tanh(enc.unsqueeze(2) + dec.unsqueeze(1))).log_softmax(-1)  # B x T x U x V


def transducer_loss(log_probs, targets, blank=0):
    B, T, U, V = log_probs.shape
    alpha = [[None] * U for _ in range(T)]
    for t in range(T):
        for u in range(U):
            if t == 0 and u == 0:
                alpha[t][u] = torch.zeros(B)
                continue
            terms = []
            if t > 0:
                terms.append(alpha[t - 1][u] + log_probs[:, t - 1, u, blank])
            if u > 0:
                emit = log_probs[:, t, u - 1].gather(1, targets[:, u - 1 : u]).squeeze(1)
                terms.append(alpha[t][u - 1] + emit)
            alpha[t][u] = terms[0] if len(terms) == 1 else torch.logaddexp(*terms)
    return -(alpha[T - 1][U - 1] + log_probs[:, T - 1, U - 1, blank]).mean()


model = Transducer()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(3):
    x, y = torch.randn(2, 7, 8), torch.randint(1, 6, (2, 3))
    loss = transducer_loss(model(x, y), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, float(loss))
