import torch
from torch import nn
import torch.nn.functional as F


class HyperNetwork(nn.Module):
    def __init__(self, f_size=3, z_dim=8, out_size=4, in_size=4):
        super().__init__()
        self.z_dim, self.f_size, self.out_size, self.in_size = z_dim, f_size, out_size, in_size
        self.w1 = nn.Parameter(torch.fmod(torch.randn((z_dim, out_size * f_size * f_size)), 2))
        self.b1 = nn.Parameter(torch.fmod(torch.randn((out_size * f_size * f_size)), 2))
        self.w2 = nn.Parameter(torch.fmod(torch.randn((z_dim, in_size * z_dim)), 2))
        self.b2 = nn.Parameter(torch.fmod(torch.randn((in_size * z_dim)), 2))

    def forward(self, z):
        h_in = torch.matmul(z, self.w2) + self.b2
        h_in = h_in.view(self.in_size, self.z_dim)
        h_final = torch.matmul(h_in, self.w1) + self.b1
        return h_final.view(self.out_size, self.in_size, self.f_size, self.f_size)


class Embedding(nn.Module):
    def __init__(self, z_num, z_dim):
        super().__init__()
        self.z_list = nn.ParameterList()
        self.z_num = z_num
        h, k = z_num
        for i in range(h):
            for j in range(k):
                self.z_list.append(nn.Parameter(torch.fmod(torch.randn(z_dim), 2)))

    def forward(self, hyper_net):
        ww = []
        h, k = self.z_num
        for i in range(h):
            w = [hyper_net(self.z_list[i * k + j]) for j in range(k)]
            ww.append(torch.cat(w, dim=1))
        return torch.cat(ww, dim=0)


class PrimaryNetwork(nn.Module):
    def __init__(self, z_dim=8):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(4)
        self.hope = HyperNetwork(z_dim=z_dim)
        self.zs = nn.ModuleList(Embedding(size, z_dim) for size in [[1, 1], [1, 1], [2, 1], [2, 2]])
        self.final = nn.Linear(8, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        for z in self.zs:
            x = F.relu(F.conv2d(x, z(self.hope), padding=1))
        return self.final(x.mean((2, 3)))


net = PrimaryNetwork()
optimizer = torch.optim.Adam(net.parameters(), lr=0.002)
for i in range(3):
    inputs, labels = torch.rand(3, 3, 8, 8), torch.randint(0, 10, (3,))
    optimizer.zero_grad()
    loss = nn.CrossEntropyLoss()(net(inputs), labels)
    loss.backward()
    optimizer.step()
    print("[%d] loss: %.3f" % (i, loss.item()))
