import torch
import torch.nn as nn
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.pi = nn.Linear(32, 2)
        self.value = nn.Linear(32, 1)

    def forward(self, s):
        h = self.body(s)
        return self.pi(h), self.value(h)


torch.manual_seed(0)
net = Policy()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for episode in range(60):
    memory = []
    for t in range(16):
        s = torch.randn(4)
        logits, v = net(s)
        dist = Categorical(logits=logits)
        a = dist.sample()
        r = 1.0 if (a.item() == int(s[0] > 0)) else 0.0
        memory.append((dist.log_prob(a), v, r))
    log_probs = torch.stack([m[0] for m in memory])
    values = torch.cat([m[1] for m in memory])
    rewards = torch.tensor([m[2] for m in memory])
    adv = (rewards - values).detach()
    policy_loss = -(log_probs * adv).mean()
    value_loss = ((values - rewards) ** 2).mean()
    loss = policy_loss + 0.5 * value_loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    if episode % 20 == 19:
        print("episode", episode, "reward", rewards.mean().item())
