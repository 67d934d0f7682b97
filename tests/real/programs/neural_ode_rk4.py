import argparse

import torch
import torch.nn as nn
import torch.optim as optim

parser = argparse.ArgumentParser("ODE demo")
parser.add_argument("--method", type=str, choices=["euler", "rk4"], default="rk4")
parser.add_argument("--data_size", type=int, default=250)
parser.add_argument("--batch_time", type=int, default=10)
parser.add_argument("--batch_size", type=int, default=10)
parser.add_argument("--niters", type=int, default=3)
args = parser.parse_args()

true_y0 = torch.tensor([[2.0, 0.0]])
t = torch.linspace(0.0, 25.0, args.data_size)
true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])


def rk4_step(func, t0, dt, y):
    k1 = func(t0, y)
    k2 = func(t0 + dt / 2, y + dt * k1 / 2)
    k3 = func(t0 + dt / 2, y + dt * k2 / 2)
    k4 = func(t0 + dt, y + dt * k3)
    return y + dt * (k1 + 2 * k2 + 2 * k3 + k4) / 6


def euler_step(func, t0, dt, y):
    return y + dt * func(t0, y)


def odeint(func, y0, t, method="rk4"):
    step = {"rk4": rk4_step, "euler": euler_step}[method]
    ys = [y0]
    for t0, t1 in zip(t[:-1], t[1:]):
        ys.append(step(func, t0, t1 - t0, ys[-1]))
    return torch.stack(ys)


class Lambda(nn.Module):
    def forward(self, t, y):
        return torch.mm(y**3, true_A)


with torch.no_grad():
    true_y = odeint(Lambda(), true_y0, t, method="rk4")


def get_batch():
    s = torch.randint(0, args.data_size - args.batch_time, (args.batch_size,))
    batch_y0 = true_y[s]  # (M, D)
    batch_t = t[: args.batch_time]  # (T)
    batch_y = torch.stack([true_y[s + i] for i in range(args.batch_time)], dim=0)  # (T, M, D)
    return batch_y0, batch_t, batch_y


class ODEFunc(nn.Module):
    def __init__(self):
        super(ODEFunc, self).__init__()
        self.net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2))
        for m in self.net.modules():
            if isinstance(m, nn.Linear):
                nn.init.normal_(m.weight, mean=0, std=0.1)
                nn.init.constant_(m.bias, val=0)

    def forward(self, t, y):
        return self.net(y**3)


if __name__ == "__main__":
    func = ODEFunc()
    optimizer = optim.RMSprop(func.parameters(), lr=1e-3)
    for itr in range(1, args.niters + 1):
        optimizer.zero_grad()
        batch_y0, batch_t, batch_y = get_batch()
        pred_y = odeint(func, batch_y0, batch_t, method=args.method)
        loss = torch.mean(torch.abs(pred_y - batch_y))
        loss.backward()
        optimizer.step()
        print("Iter {:04d} | Total Loss {:.6f}".format(itr, loss.item()))
