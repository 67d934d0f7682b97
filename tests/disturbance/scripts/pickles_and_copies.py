"""Models of `__main__` pickled, copied deeply and saved in the middle of training; functions of torch inside pickles."""

import copy
import hashlib
import io
import pickle
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.reduction import ForkingPickler
import torch
from torch import nn


@dataclass
class Config:
    width: int = 4
    act: object = torch.tanh
    load: object = torch.from_numpy
    opt: object = torch.optim.SGD
    init: object = partial(nn.init.normal_, std=0.1)
    extra: dict = field(default_factory=dict)


class Net(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config, self.body = config, nn.Linear(config.width, 1)
        config.init(self.body.weight)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        self.steps += 1
        return self.config.act(self.body(x))

    def __getstate__(self):
        return {**self.__dict__, "note": "pickled"}


def digest(data):
    return len(data), hashlib.sha1(data).hexdigest()[:12]


torch.manual_seed(0)
config = Config()
net = Net(config)
opt = config.opt(net.parameters(), lr=0.1, momentum=0.9)
for step in range(4):
    loss = net(torch.randn(3, 4)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    twin = copy.deepcopy(net)
    again = pickle.loads(pickle.dumps(net))
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "opt": opt.state_dict(), "step": step}, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    print(
        step,
        loss.item(),
        twin.steps.item(),
        torch.equal(again.body.weight, net.body.weight),
        again.note,
        loaded["step"],
    )
    print(pickle.loads(pickle.dumps(config)) == config, sorted(vars(net)), sorted(vars(net.body)))
copy.copy(net).load_state_dict(twin.state_dict())
opt.load_state_dict(copy.deepcopy(opt.state_dict()))
for function in (
    torch.from_numpy,
    torch.tanh,
    torch.compile,
    torch.autograd.grad,
    torch.Tensor.backward,
    nn.Linear,
    torch.no_grad,
    torch.utils.checkpoint.checkpoint,
):
    print(
        function.__name__,
        digest(bytes(ForkingPickler.dumps(function))),
        pickle.loads(pickle.dumps(function)) is function,
    )
print(copy.deepcopy(torch.from_numpy) is torch.from_numpy, nn.Parameter(torch.ones(1)).__reduce_ex__(2)[0].__name__)
