"""Soft actor-critic: three losses, three optimizers, a learned temperature."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Normal

LOG_SIG_MAX, LOG_SIG_MIN = 2, -20


class QNetwork(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim):
        super().__init__()
        # Q1 architecture
        self.linear1 = nn.Linear(num_inputs + num_actions, hidden_dim)
        self.linear2 = nn.Linear(hidden_dim, 1)
        # Q2 architecture
        self.linear3 = nn.Linear(num_inputs + num_actions, hidden_dim)
        self.linear4 = nn.Linear(hidden_dim, 1)

    def forward(self, state, action):
        xu = torch.cat([state, action], 1)
        return self.linear2(F.relu(self.linear1(xu))), self.linear4(F.relu(self.linear3(xu)))


class GaussianPolicy(nn.Module):
    def __init__(self, num_inputs, num_actions, hidden_dim):
        super().__init__()
        self.linear1 = nn.Linear(num_inputs, hidden_dim)
        self.mean_linear = nn.Linear(hidden_dim, num_actions)
        self.log_std_linear = nn.Linear(hidden_dim, num_actions)

    def sample(self, state):
        x = F.relu(self.linear1(state))
        mean, log_std = self.mean_linear(x), self.log_std_linear(x).clamp(LOG_SIG_MIN, LOG_SIG_MAX)
        normal = Normal(mean, log_std.exp())
        x_t = normal.rsample()  # for reparameterization trick (mean + std * N(0,1))
        action = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t) - torch.log(1 - action.pow(2) + 1e-6)
        return action, log_prob.sum(1, keepdim=True)

    forward = sample


class SAC(object):
    def __init__(self, num_inputs=6, num_actions=2):
        self.gamma, self.tau = 0.99, 0.005
        self.critic = QNetwork(num_inputs, num_actions, 32)
        self.critic_optim = torch.optim.Adam(self.critic.parameters(), lr=3e-4)
        self.critic_target = copy.deepcopy(self.critic)
        self.policy = GaussianPolicy(num_inputs, num_actions, 32)
        self.policy_optim = torch.optim.Adam(self.policy.parameters(), lr=3e-4)
        self.target_entropy = -float(num_actions)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.alpha_optim = torch.optim.Adam([self.log_alpha], lr=3e-4)

    def update_parameters(self, batch):
        state, action, reward, next_state, mask = batch
        alpha = self.log_alpha.exp().detach()
        with torch.no_grad():
            next_action, next_log_pi = self.policy(next_state)
            q1_next, q2_next = self.critic_target(next_state, next_action)
            min_q_next = torch.min(q1_next, q2_next) - alpha * next_log_pi
            next_q_value = reward + mask * self.gamma * min_q_next
        qf1, qf2 = self.critic(state, action)
        qf_loss = F.mse_loss(qf1, next_q_value) + F.mse_loss(qf2, next_q_value)
        self.critic_optim.zero_grad()
        qf_loss.backward()
        self.critic_optim.step()

        for p in self.critic.parameters():
            p.requires_grad_(False)
        pi, log_pi = self.policy(state)
        policy_loss = ((alpha * log_pi) - torch.min(*self.critic(state, pi))).mean()
        self.policy_optim.zero_grad()
        policy_loss.backward()
        self.policy_optim.step()
        for p in self.critic.parameters():
            p.requires_grad_(True)

        alpha_loss = -(self.log_alpha * (log_pi + self.target_entropy).detach()).mean()
        self.alpha_optim.zero_grad()
        alpha_loss.backward()
        self.alpha_optim.step()

        with torch.no_grad():
            for target, param in zip(self.critic_target.parameters(), self.critic.parameters()):
                target.data.copy_(target.data * (1.0 - self.tau) + param.data * self.tau)
        return qf_loss.item(), policy_loss.item(), alpha_loss.item()


if __name__ == "__main__":
    torch.manual_seed(123456)
    agent = SAC()
    for updates in range(3):
        batch = torch.randn(8, 6), torch.rand(8, 2) * 2 - 1, torch.randn(8, 1), torch.randn(8, 6), torch.ones(8, 1)
        print(updates, agent.update_parameters(batch))
