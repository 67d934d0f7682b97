import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
criterion = nn.MSELoss()


def train_step(x, y):
    optimizer.zero_grad()
    out = model(x)
    kept = out.detach()

    def scale(gradient):
        return gradient * kept.abs().mean()

    out.register_hook(scale)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()


for x, y in data:
    train_step(x, y)
