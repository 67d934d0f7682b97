"""Distributions: a VAE, REINFORCE with a baseline, relaxed samples, a mixture and a Markov chain."""

import torch
from torch import distributions as D, nn

torch.manual_seed(0)
enc, dec, pol = nn.Linear(5, 4), nn.Linear(2, 5), nn.Linear(3, 2)
opt = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *pol.parameters()], 1e-2)
prior = D.Normal(torch.zeros(2), torch.ones(2))
baseline = 0.0
state = torch.zeros(3)
for step in range(4):
    x = torch.rand(6, 5)
    mu, logvar = enc(x).chunk(2, -1)
    q = D.Normal(mu, (0.5 * logvar).exp())
    z = q.rsample()
    elbo = D.Bernoulli(logits=dec(z)).log_prob(x.round()).sum(-1) - D.kl_divergence(q, prior).sum(-1)
    d = D.Categorical(logits=pol(state))
    action = d.sample()
    reward = float(action.item() == step % 2)
    baseline += 0.1 * (reward - baseline)
    reinforce = -(reward - baseline) * d.log_prob(action) - 0.01 * d.entropy()
    soft = D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=pol(state)).rsample()
    mix = D.MixtureSameFamily(D.Categorical(torch.ones(2)), D.Normal(z[0], torch.ones(2)))
    loss = -elbo.mean() + reinforce + soft[0] + 0.01 * mix.log_prob(torch.zeros(())).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    state = state * 0.9 + torch.randn(3) * 0.1
    print(
        step,
        loss.item(),
        action.item(),
        reward,
        D.Beta(2.0, 3.0).sample().item(),
        torch.multinomial(torch.ones(4), 2).tolist(),
        torch.bernoulli(torch.full((3,), 0.5)).tolist(),
    )
