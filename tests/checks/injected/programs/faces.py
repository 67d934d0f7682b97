import torch
from torch import nn


class Sharpen(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, s):
        ctx.s = s
        return x * s

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.s, None


class FaceNet(nn.Module):
    def __init__(self, dim=24, people=10, s=8.0):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(dim, 32), nn.Tanh())
        self.fc = nn.Linear(32, people)
        self.s = s

    def forward(self, faces):
        h = self.backbone(faces)
        h = Sharpen.apply(h, self.s)
        return self.fc(h)


torch.manual_seed(0)
faces = torch.randn(200, 24)
who = faces[:, :10].argmax(1)
net = FaceNet()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for epoch in range(10):
    for i in range(0, 200, 40):
        loss = nn.functional.cross_entropy(net(faces[i : i + 40]), who[i : i + 40])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("loss", round(loss.item(), 4))
