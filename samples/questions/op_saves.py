"""Question: what does this op save for backward?

Some ops save their input, some their result, some both, some only a size. It decides how much memory a line costs:
`sigmoid` saves its result, which the next op may save as well, at no further cost.

Try:
    gradviz saved samples/questions/op_saves.py --by line
"""

import torch

torch.manual_seed(0)
x = torch.randn(256, 1024, requires_grad=True)
weight = torch.randn(1024, 1024, requires_grad=True)

y = x @ weight
gate = torch.sigmoid(y)
product = gate * y
shifted = product + 1.0
positive = torch.relu(shifted)
loss = positive.mean()
loss.backward()
print(f"loss {loss.item():.2f}")
