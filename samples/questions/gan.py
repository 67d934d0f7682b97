"""Question: does the discriminator's step also run back through the generator?

The fake sample reaches the discriminator with its graph. backward() of the discriminator's loss then runs through the
generator, too: time and memory for gradients that are thrown away, or worse, added to the generator's next step.

Try:
    gradviz paths samples/questions/gan.py --to generator.0.weight
"""

import torch
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
discriminator = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer_g = torch.optim.Adam(generator.parameters(), lr=1e-3)
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=1e-3)
bce = nn.functional.binary_cross_entropy_with_logits

for step in range(3):
    real, fake = torch.randn(16, 2), generator(torch.randn(16, 4))
    loss_d = bce(discriminator(real), torch.ones(16, 1)) + bce(discriminator(fake), torch.zeros(16, 1))
    optimizer_d.zero_grad()
    loss_d.backward()
    optimizer_d.step()

    loss_g = bce(discriminator(generator(torch.randn(16, 4))), torch.ones(16, 1))
    optimizer_g.zero_grad()
    loss_g.backward()
    optimizer_g.step()
print(f"discriminator {loss_d.item():.3f}, generator {loss_g.item():.3f}")
