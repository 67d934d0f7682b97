import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
criterion = nn.MSELoss()


def validate():
    model.eval()
    total = 0.0
    for x, y in data:
        out = model(x)
        total += criterion(out, y).item()
    model.train()
    return total


for epoch in range(3):
    for x, y in data:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
    print(validate())
