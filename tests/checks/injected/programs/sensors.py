import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sensors(Dataset):
    def __init__(self, n=160):
        g = torch.Generator().manual_seed(5)
        self.x = torch.randn(n, 6, generator=g)
        self.y = self.x[:, :3] * 2 + 1
        self.y[100:140:7, 1] = float("nan")  # not every station reports

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 32)
        self.b = nn.Linear(32, 3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def masked_mse(pred, target):
    known = ~torch.isnan(target)
    squared = torch.square(pred[known] - target[known])
    return squared.mean()


torch.manual_seed(0)
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(5):
    for x, y in DataLoader(Sensors(), batch_size=20):
        loss = masked_mse(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("epoch %d loss %.4f" % (epoch, loss.item()))
