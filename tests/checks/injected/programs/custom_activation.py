import torch
import torch.nn as nn


class ISRLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        neg = torch.clamp(x, max=0)
        nisr = torch.rsqrt(1.0 + alpha * neg**2)
        ctx.save_for_backward(nisr)
        return x * nisr

    @staticmethod
    def backward(ctx, grad_out):
        (nisr,) = ctx.saved_tensors
        return grad_out * nisr**3, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        return self.b(ISRLU.apply(self.a(x), 1.0))


torch.manual_seed(0)
X = torch.randn(128, 8)
Y = X[:, :1] * X[:, 1:2]
net = Net()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for i in range(60):
    opt.zero_grad()
    loss = ((net(X) - Y) ** 2).mean()
    loss.backward()
    opt.step()
print("loss", loss.item())
