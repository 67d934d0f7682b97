import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
device = torch.device("cpu")
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(6)]
criterion = nn.MSELoss()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.fc = nn.Linear(4 * 36, 1)

    def forward(self, x):
        x = self.conv(x)
        F.relu(x)
        x = x.view(len(x), -1)
        return self.fc(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in data:
    optimizer.zero_grad()
    loss = criterion(model(torch.randn(8, 1, 8, 8)), y)
    loss.backward()
    optimizer.step()
