import torch, torch.nn as nn


class LabelModel(nn.Module):
    def __init__(self, n, k):
        super().__init__()
        self.acc = nn.Parameter(torch.randn(n, k) * 0.1)
        self.prior = nn.Parameter(torch.zeros(k))

    def forward(self, votes):
        return votes @ self.acc + self.prior


torch.manual_seed(0)
votes = torch.randint(-1, 2, (640, 20)).float()
y = (votes.sum(1) > 0).long()
model = LabelModel(20, 2)
opt = torch.optim.Adam(model.parameters(), lr=0.02)
for epoch in range(6):
    running_loss = 0.0
    for i in range(0, 640, 16):
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(votes[i : i + 16]), y[i : i + 16])
        loss.backward()
        opt.step()
        running_loss += loss.item()
    print("epoch", epoch, "loss", float(running_loss) / 40)
