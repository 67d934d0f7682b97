"""Question: my encoder is frozen: why does it still use memory?

All of the encoder is frozen but one bias in its first layer. To reach that bias, backward has to pass through all layers
after it, so autograd keeps what they need, although nothing in them is trained.

Try:
    gradviz saved samples/questions/frozen_encoder.py --by module
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.GELU()) for _ in range(6)))
head = nn.Linear(256, 10)

encoder.requires_grad_(False)
encoder[0][0].bias.requires_grad_(True)

features = encoder(torch.randn(512, 256))
loss = nn.functional.cross_entropy(head(features), torch.randint(10, (512,)))
loss.backward()
print("trained:", [name for name, parameter in encoder.named_parameters() if parameter.requires_grad])
