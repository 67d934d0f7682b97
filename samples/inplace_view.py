"""Changing a tensor through a view of it.

`row = table[1]` shares memory with `table`. When `row.mul_(3)` changes the row in place, the table has changed too, and
its history must say so. PyTorch rewrites the history of the base: `table.grad_fn` becomes a `CopySlices` node, which
means "the table as before, with this part replaced by the result of that operation". The multiplication sits inside
`CopySlices` and is not a node that one could reach.

The view gets a new `grad_fn` as well, made when somebody first asks for it: it is now a piece of the changed table.

Try:
    python samples/inplace_view.py
    gradviz render samples/inplace_view.py
    gradviz tree samples/inplace_view.py
"""

import torch

x = torch.ones(3, 4, requires_grad=True)
table = x.clone()  # a leaf that requires a gradient may not be changed in place, its clone may
row = table[1]
assert table.grad_fn.name() == "CloneBackward0"

row.mul_(3)
assert type(table.grad_fn).__name__ == "CopySlices"
assert table._version == 1 and row._version == 1  # one count of changes for the base and all its views

table[:, 0] = 0  # an assignment is an in-place change through a view, too
loss = table.sum()
loss.backward()

expected = torch.ones(3, 4)
expected[1] = 3
expected[:, 0] = 0  # what was overwritten has no influence any more
assert torch.equal(x.grad, expected)

print("the table was made by", type(table.grad_fn).__name__, "and changed", table._version, "times")
print("gradient of x:", x.grad.tolist())
