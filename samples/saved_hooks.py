"""Saved tensors on disk: pack and unpack hooks.

Many operations save tensors in the forward pass because the backward pass needs them. `saved_tensors_hooks(pack,
unpack)` gets between: `pack` is called with each tensor that would be saved and returns anything it likes, which is
kept instead; `unpack` is called when the tensor is needed and must give back one with the same content.

Here `pack` writes the tensor to a temporary file, and what is kept is only a small object with the file's name. When
nobody needs that object any more (the graph is gone, or a backward has freed it) it deletes its file.

Two things to know. `unpack` may run several times for the same tensor: once for every backward that needs it, here two,
because the first keeps the graph. So it must not delete the file. And just reading `grad_fn._saved_self` runs `unpack`
too. A tool that wants to look at a graph without disturbing it has to avoid that: run this script under gradviz and the
hook is not called.

One slot of one node can have hooks of its own: `grad_fn._raw_saved_self.register_hooks`, see the end.

Try:
    python samples/saved_hooks.py
    gradviz saved samples/saved_hooks.py
    gradviz render samples/saved_hooks.py
"""

import os
import tempfile
import weakref
from pathlib import Path

import torch

torch.manual_seed(0)

counts = {"pack": 0, "unpack": 0}
files = []


class TensorOnDisk:
    """A tensor in a temporary file that lives exactly as long as this object."""

    def __init__(self, tensor):
        handle, name = tempfile.mkstemp(suffix=".pt")
        os.close(handle)
        self.path = Path(name)
        torch.save(tensor, self.path)
        files.append(self.path)
        weakref.finalize(self, self.path.unlink, missing_ok=True)

    def load(self):
        return torch.load(self.path)


def pack(tensor):
    counts["pack"] += 1
    return TensorOnDisk(tensor)


def unpack(packed):
    counts["unpack"] += 1
    return packed.load()


x = torch.randn(5, requires_grad=True)
with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
    y = x.exp()  # saves its result
    z = y * y  # saves both factors
    loss = z.sum()  # saves nothing but a shape

assert counts == {"pack": 3, "unpack": 0}
assert all(path.exists() for path in files)

loss.backward(retain_graph=True)
once = x.grad.clone()
assert torch.allclose(once, 2 * torch.exp(2 * x.detach()))
assert counts == {"pack": 3, "unpack": 3}
print("after the first backward:", counts, "files on disk:", sum(path.exists() for path in files))

loss.backward()  # needs the saved tensors again, then lets go of them
assert torch.equal(x.grad, once + once)
assert not any(path.exists() for path in files)
print("after the second backward:", counts, "files on disk:", sum(path.exists() for path in files))

# Hooks for one saved tensor only, registered after the operation.
square = x**2
square.grad_fn._raw_saved_self.register_hooks(pack, unpack)
assert counts["pack"] == 4 and files[-1].exists()
del square
assert not files[-1].exists()
print("the file went away with its graph")
