"""Ways not to record: no_grad, inference_mode, detach, and what eval() is not.

Default mode        Operations on tensors that require a gradient are recorded.
`torch.no_grad()`   Nothing is recorded inside. The results are ordinary tensors without a graph: later, in the default
                    mode, they may be used like constants.
`inference_mode()`  Nothing is recorded, and PyTorch does not even keep count of in-place changes. That is a little
                    faster; in return the results may not be saved by any recorded operation later.
`tensor.detach()`   One tensor that shares its numbers with another but not its history. The graph ends there.
`model.eval()`      Something else entirely: it makes dropout and batch norm behave as in use. It records all the same.

Try:
    python samples/grad_modes.py
    gradviz render samples/grad_modes.py
    gradviz render samples/grad_modes.py:doubled_without_grad     (says why there is no graph)
    gradviz render samples/grad_modes.py:evaluated
"""

import torch
from torch import nn

torch.manual_seed(0)

x = torch.randn(3, requires_grad=True)

recorded = x * 2
assert recorded.requires_grad and recorded.grad_fn.name() == "MulBackward0"

with torch.no_grad():
    doubled_without_grad = x * 2
assert not doubled_without_grad.requires_grad and doubled_without_grad.grad_fn is None

with torch.inference_mode():
    doubled_in_inference = x * 2
assert doubled_in_inference.is_inference() and not doubled_in_inference.requires_grad

detached = recorded.detach()
assert detached.grad_fn is None
assert detached.untyped_storage().data_ptr() == recorded.untyped_storage().data_ptr()  # same numbers, no history

# A result of no_grad is a constant in later, recorded computations.
total = (recorded * doubled_without_grad + detached).sum()

# A result of inference mode may not be saved for a backward.
try:
    x * doubled_in_inference
    refused = False
except RuntimeError as error:
    refused = True
    print("inference tensor refused:", str(error).split(". ")[0])
assert refused

# eval() changes what dropout does, not whether operations are recorded.
model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
evaluated = model(torch.ones(2, 3))
assert evaluated.requires_grad

total.backward()
assert torch.equal(x.grad, 2 * doubled_without_grad)  # only the recorded way counts
print("gradient of x:", [round(value, 4) for value in x.grad.tolist()])
