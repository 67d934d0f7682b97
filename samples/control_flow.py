"""Python decides what the graph is: a branch and a loop.

Other frameworks build the graph first and run it afterwards. PyTorch records while Python runs, so an `if` leaves only
the branch that was taken and a loop leaves as many copies of its body as it had turns. The condition itself leaves
nothing: turning a tensor into a bool for `if` or `while` is not recorded.

So the graph belongs to one run with one input. Run with `--negative` and the other branch is in it.

Try:
    python samples/control_flow.py
    python samples/control_flow.py --negative
    gradviz render samples/control_flow.py
    gradviz render samples/control_flow.py -- --negative
    gradviz render samples/control_flow.py -- --limit 1000     (more turns of the loop)
"""

import argparse

import torch

parser = argparse.ArgumentParser(description="A graph that depends on its input.")
sign = parser.add_mutually_exclusive_group()
sign.add_argument("--positive", dest="negative", action="store_false", help="take the first branch (default)")
sign.add_argument("--negative", dest="negative", action="store_true", help="take the other branch")
parser.add_argument("--limit", type=float, default=100.0, help="double until the sum is above this")
parser.set_defaults(negative=False)
arguments = parser.parse_args()

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
start = -x if arguments.negative else x * 1

if start.sum() > 0:
    branch = "square"
    value = start * start
else:
    branch = "exp"
    value = torch.exp(start)

turns = 0
while value.sum() < arguments.limit:
    value = value * 2
    turns += 1

loss = value.sum()
loss.backward()

derivative = -torch.exp(-x.detach()) if arguments.negative else 2 * x.detach()
assert torch.allclose(x.grad, 2**turns * derivative)
print(f"branch {branch}, {turns} turns of the loop, loss {loss.item():.4f}")
print("gradient:", [round(entry, 4) for entry in x.grad.tolist()])
