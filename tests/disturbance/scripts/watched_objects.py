"""Objects that count how they are looked at: properties, __getattr__, __len__, __iter__, __bool__, __eq__, __repr__, lazy loaders."""

import collections
import torch
from torch import nn

touched = collections.Counter()


class Lazy:
    def __getattr__(self, name):
        touched[f"getattr {name}"] += 1
        raise AttributeError(name)

    def __len__(self):
        touched["len"] += 1
        return 3

    def __iter__(self):
        touched["iter"] += 1
        return iter([torch.ones(1)])

    def __bool__(self):
        touched["bool"] += 1
        return True

    def __eq__(self, other):
        touched["eq"] += 1
        return self is other

    def __hash__(self):
        touched["hash"] += 1
        return 1

    def __repr__(self):
        touched["repr"] += 1
        return "Lazy"

    @property
    def loss(self):
        touched["property"] += 1
        return torch.ones(1, requires_grad=True)


class LazyDict(dict):
    def __getitem__(self, key):
        touched[f"item {key}"] += 1
        return super().__getitem__(key)

    def items(self):
        touched["items"] += 1
        return super().items()

    def values(self):
        touched["values"] += 1
        return super().values()


class Meta(type):
    def __instancecheck__(cls, other):
        touched["instancecheck"] += 1
        return type.__instancecheck__(cls, other)

    def __getattribute__(cls, name):
        if not name.startswith("__"):
            touched[f"class {name}"] += 1
        return super().__getattribute__(name)


class Net(nn.Module, metaclass=Meta):
    def __init__(self):
        super().__init__()
        self.l, self.lazy, self.cache = nn.Linear(3, 1), Lazy(), LazyDict(a=torch.zeros(1))
        self.generator = (i for i in range(5))

    @property
    def norm(self):
        touched["norm"] += 1
        return self.l.weight.norm()

    def parameters(self, recurse=True):
        touched["parameters"] += 1
        return super().parameters(recurse)

    def named_modules(self, *args, **kwargs):
        touched["named_modules"] += 1
        return super().named_modules(*args, **kwargs)

    def forward(self, x):
        return self.l(x)


class Scalar(float):
    def __float__(self):
        touched["float"] += 1
        return 1.0


torch.manual_seed(0)
lazy, table, numbers, scalar = Lazy(), LazyDict(x=1), (n for n in range(10)), Scalar(2)
net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
held = [lazy, {"k": lazy}, (table,)]


def train():
    local = Lazy()
    for step in range(4):
        loss = net(torch.randn(2, 3)).square().sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        next(numbers), next(net.generator)
    return loss.item()


print(train(), next(numbers), next(net.generator))
print(sorted(touched.items()))
