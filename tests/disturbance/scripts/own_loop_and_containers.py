"""Plain tensors and no modules: lists, dicts and closures of parameters, a generator of batches, an own optimizer."""

import collections
import itertools
import math
import numpy as np
import torch

rng = np.random.RandomState(0)
torch.manual_seed(0)
Params = collections.namedtuple("Params", "w b")
layers = [
    Params(torch.randn(a, b).div_(math.sqrt(a)).requires_grad_(), torch.zeros(b, requires_grad=True))
    for a, b in ((3, 5), (5, 5), (5, 1))
]
moments = {id_: [torch.zeros_like(t) for t in layer] for id_, layer in enumerate(layers)}
history = collections.deque(maxlen=3)
scale = torch.ones((), requires_grad=True)


def data():
    while True:
        x = rng.randn(8, 3).astype("float32")
        yield torch.from_numpy(x), torch.from_numpy(np.sin(x.sum(1, keepdims=True)))


def make(scale):
    def model(x):
        for w, b in layers[:-1]:
            x = torch.where((x @ w + b) > 0, x @ w + b, 0.01 * (x @ w + b))
        return (x @ layers[-1].w + layers[-1].b) * scale

    return model


model = make(scale)
for step, (x, y) in enumerate(itertools.islice(data(), 6)):
    loss = ((model(x) - y) ** 2).mean()
    history.append(loss.detach().numpy().item())
    tensors = [t for layer in layers for t in layer] + [scale]
    grads = torch.autograd.grad(loss, tensors) if step % 2 else None
    if grads is None:
        loss.backward()
        grads = [t.grad for t in tensors]
    with torch.no_grad():
        for (i, j), g in zip(itertools.product(range(3), range(2)), grads):
            m = moments[i][j]
            m.mul_(0.9).add_(g, alpha=0.1)
            layers[i][j].sub_(0.1 * m)
        scale -= 0.01 * grads[-1]
        for t in tensors:
            t.grad = None
    print(
        step,
        list(history),
        x.numpy()[0].tolist(),
        float(scale),
        np.asarray(loss.detach()).item(),
        loss.detach().tolist(),
        bool(loss > 0),
        int(loss),
        len(x),
    )
for name in ("shape", "dtype", "device", "requires_grad", "is_leaf", "grad", "ndim", "T", "data"):
    print(name, str(getattr(layers[0].w, name))[:60])
