import torch
import torch.nn as nn


class RegressionHead(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.feed = nn.Linear(d, 1)

    def forward(self, x):
        return self.feed(x)


torch.manual_seed(0)
X = torch.randn(320, 16)
Y = (X @ torch.randn(16, 1)) * 2 + 8
body, head = nn.Sequential(nn.Linear(16, 32), nn.ReLU()), RegressionHead(32)
opt = torch.optim.Adam(list(body.parameters()) + list(head.parameters()), lr=5e-3)
loss_fn = nn.MSELoss()
for epoch in range(6):
    for i in range(0, 320, 32):
        opt.zero_grad()
        loss = loss_fn(head(body(X[i : i + 32])), Y[i : i + 32])
        loss.backward()
        opt.step()
    print(epoch, loss.item())
