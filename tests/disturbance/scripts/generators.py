"""Augmentation seeded with `random` and numpy, dropout, sampling, own Generators: everything that draws goes on with the same numbers."""

import random
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

random.seed(7)
np.random.seed(7)
torch.manual_seed(7)
rng = np.random.default_rng(7)
gen = torch.Generator().manual_seed(7)

net = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.Dropout2d(0.3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(4 * 36, 2)
)
opt = torch.optim.RMSprop(net.parameters(), lr=1e-3)


def augment(image):
    if random.random() < 0.5:
        image = image.flip(-1)
    image = np.roll(image.numpy(), np.random.randint(3), axis=1)
    return torch.from_numpy(image + rng.normal(size=image.shape).astype("float32") * 0.1)


for step in range(4):
    images = torch.stack([augment(torch.rand(1, 8, 8, generator=gen)) for _ in range(4)])
    labels = torch.tensor([random.randrange(2) for _ in range(4)])
    loss = F.cross_entropy(net(images), labels)
    opt.zero_grad()
    loss.backward()
    print(
        step,
        loss.item(),
        random.random(),
        np.random.rand(),
        rng.random(),
        torch.rand(1).item(),
        torch.rand(1, generator=gen).item(),
    )
    opt.step()
    F.gumbel_softmax(torch.zeros(3), hard=True)
    F.rrelu(torch.randn(3), training=True)
    perm = torch.randperm(4)
order = list(range(10))
random.shuffle(order)
print(order, random.sample(range(100), 3), np.random.permutation(5).tolist(), perm.tolist())
