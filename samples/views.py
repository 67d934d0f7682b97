"""Views: several tensors, one storage.

A tensor is a size, strides and an offset on top of a storage, the block of memory with the numbers. Element [i, j] is
found at offset + i * stride[0] + j * stride[1]. Basic indexing makes a new tensor on the same storage, a view, by
computing new numbers for the three:

    size      how many are left
    stride    old stride * step of the slice
    offset    old offset + sum of (start of the slice * old stride)

For `table` of size (6, 8), strides (8, 1), and `window = table[1:5:2, 1:4]`: size (2, 3), strides (16, 1), offset
1 * 8 + 1 * 1 = 9. Expanding (also broadcasting) is a stride of 0: the same number read again and again.

Indexing with a list or a tensor cannot be written as strides. It makes a copy. Assigning through either kind of index
changes the original in place.

In the graph a view is a node like any other. What differs is memory: saving a small view keeps its whole storage.

Try:
    python samples/views.py
    gradviz render samples/views.py
    gradviz saved samples/views.py
"""

import torch

numbers = torch.arange(48.0, requires_grad=True)
table = numbers.view(6, 8)
window = table[1:5:2, 1:4]
column = window[:, :1].expand(2, 3)
picked = table[[1, 3]]


def shares_storage(one, other):
    return one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


assert table.stride() == (8, 1)
assert window.stride() == (16, 1)
assert window.storage_offset() == 9
assert window.size() == (2, 3)
assert column.stride() == (16, 0)
assert shares_storage(window, numbers) and shares_storage(column, numbers)
assert not shares_storage(picked, numbers)
assert window._base is numbers

total = (window * column).sum() + picked.sum()
total.backward()

# Rows 1 and 3 were picked: 1 each. The window adds the derivative of (first + second + third) * first in each row.
expected = torch.zeros(6, 8)
expected[[1, 3]] += 1
for row in (1, 3):
    first, second, third = table.detach()[row, 1:4]
    expected[row, 1:4] += torch.stack([2 * first + second + third, first, first])
assert torch.equal(numbers.grad.view(6, 8), expected)

# Assignment is in place, through either kind of index.
plain = torch.arange(48).view(6, 8)
plain[1:5:2, 1:4] = 0
plain[[0, 5]] = -1
assert plain[3, 2] == 0 and plain[5, 7] == -1

print("window: size", tuple(window.size()), "stride", window.stride(), "offset", window.storage_offset())
print("window shares the storage of numbers:", shares_storage(window, numbers))
print("picked shares the storage of numbers:", shares_storage(picked, numbers))
