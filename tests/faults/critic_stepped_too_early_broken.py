import torch
from torch import nn

torch.manual_seed(0)
actor = nn.Linear(3, 2)
critic = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
actor_optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
for step in range(4):
    state = torch.randn(6, 3)
    critic_loss = (critic(actor(state).detach()) - 1).square().mean()
    actor_loss = -critic(actor(state)).mean()
    critic_optimizer.zero_grad()
    critic_loss.backward()
    critic_optimizer.step()
    actor_optimizer.zero_grad()
    actor_loss.backward()
    actor_optimizer.step()
