"""Problem: some parameters take no part in the loss.

The model has a layer `auxiliary` whose result nobody uses, and a layer `forgotten` that `forward` never calls. Neither
is in the graph of the loss. Nothing fails: their `.grad` stays None, the optimizer skips them, and they keep their
random values. (Distributed training does fail, or wants `find_unused_parameters=True`.)

A third layer, `frozen`, has `requires_grad=False`. It is not in the graph either, but on purpose.

Try:
    python samples/problems/unused_parameter.py
    gradviz check samples/problems/unused_parameter.py
    gradviz render samples/problems/unused_parameter.py
"""

import torch
from torch import nn

torch.manual_seed(0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(4, 8).requires_grad_(False)
        self.used = nn.Linear(8, 1)
        self.auxiliary = nn.Linear(8, 2)
        self.forgotten = nn.Linear(8, 3)

    def forward(self, inputs):
        hidden = torch.tanh(self.frozen(inputs))
        return self.used(hidden), self.auxiliary(hidden)


model = Model()
prediction, extra = model(torch.randn(5, 4))
loss = prediction.square().mean()  # `extra` should have been in here
loss.backward()

without_gradient = [
    name for name, parameter in model.named_parameters() if parameter.requires_grad and parameter.grad is None
]
assert without_gradient == ["auxiliary.weight", "auxiliary.bias", "forgotten.weight", "forgotten.bias"]
print("parameters without a gradient:", ", ".join(without_gradient))
