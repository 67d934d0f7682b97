import torch
import torch.nn as nn


class SNLINet(nn.Module):
    def __init__(self, n_layers=3, n_hid=32):
        super().__init__()
        self.inp = nn.Linear(10, n_hid)
        self.hids = []
        for li in range(n_layers):
            self.hids.append(nn.Linear(n_hid, n_hid))
        self.hids = nn.ModuleList(self.hids)
        self.classifier = nn.Linear(n_hid, 3)

    def forward(self, x):
        h = torch.relu(self.inp(x))
        for l in self.hids:
            h = torch.relu(l(h))
        return self.classifier(h)


torch.manual_seed(0)
net = SNLINet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
x, y = torch.randn(96, 10), torch.randint(0, 3, (96,))
for it in range(50):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
print("loss", loss.item())
