import torch
import torch.nn as nn


def train(model, optimizer, criterion, loader):
    model.train()
    losses = []
    for imgs, gts in loader:
        out = model(imgs)
        loss = criterion(out, gts)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


torch.manual_seed(0)
data = [(torch.randn(16, 1, 10, 10), torch.rand(16, 1, 10, 10)) for _ in range(12)]
model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
criterion = nn.MSELoss()
for epoch in range(5):
    print("epoch", epoch, train(model, optimizer, criterion, data))
