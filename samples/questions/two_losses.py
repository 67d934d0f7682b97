"""Question: how much does each loss pull on the shared encoder?

Two heads share an encoder, and their losses are added. The gradient of the encoder is the sum of what each loss sends:
if one is a hundred times larger, the encoder learns for that one alone.

Try:
    gradviz paths samples/questions/two_losses.py --to encoder.weight
"""

import torch
from torch import nn

torch.manual_seed(0)
encoder, classify, regress = nn.Linear(8, 4), nn.Linear(4, 3), nn.Linear(4, 1)
x = torch.randn(16, 8)

features = torch.tanh(encoder(x))
class_loss = nn.functional.cross_entropy(classify(features), torch.randint(3, (16,)))
value_loss = nn.functional.mse_loss(regress(features), 100 * x[:, :1])
loss = class_loss + value_loss
loss.backward()
print(f"classes {class_loss.item():.2f}, values {value_loss.item():.2f}")
