"""Outputs in containers: dict, list, tuple, namedtuple, dataclass, model output.

Real models rarely return one tensor. This script makes two results, `logits` and `features`, and hands them out in
every container people use. The containers nest like a tree whose leaves are the tensors; PyTorch calls that a pytree,
and `torch.utils._pytree` takes one apart. Lists, tuples, named tuples and dicts are known to it. Your own class is
known after it has been registered; one that was not is taken for a single thing that is no tensor.

`ModelOutput` stands for what transformer libraries return: an ordered dict that is also read by attribute. A subclass
of dict is a class of its own, so PyTorch does not look into it either unless it is registered. A tool that shows
outputs has to.

Try:
    python samples/nested_outputs.py
    gradviz render samples/nested_outputs.py:outputs
    gradviz render samples/nested_outputs.py:outputs_dataclass
    gradviz render samples/nested_outputs.py:outputs_model
    gradviz render samples/nested_outputs.py:predict     (a function that returns tensors)
"""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import torch
from torch import nn

torch.manual_seed(0)

Pair = namedtuple("Pair", ["logits", "features"])


@dataclass
class RegisteredPair:
    logits: torch.Tensor
    features: torch.Tensor


@dataclass
class PlainPair:
    logits: torch.Tensor
    features: torch.Tensor


class ModelOutput(OrderedDict):
    """An ordered dict whose entries are attributes too."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


torch.export.register_dataclass(RegisteredPair)

inputs = torch.randn(2, 4)
encoder = nn.Linear(4, 8)
classifier = nn.Linear(8, 3)


def predict():
    """What a model returns: some tensors, nested, and things that are not tensors."""
    hidden = torch.tanh(encoder(inputs))
    return {"logits": classifier(hidden), "states": [hidden, (hidden.mean(), None)], "name": "demo", "count": 2}


features = torch.tanh(encoder(inputs))
logits = classifier(features)

outputs_list = [logits, features]
outputs_tuple = (logits, features)
outputs_named = Pair(logits, features)
outputs_dict = {"logits": logits, "features": features}
outputs_dataclass = RegisteredPair(logits, features)
outputs_plain_dataclass = PlainPair(logits, features)
outputs_model = ModelOutput(logits=logits, features=features)
outputs = {
    "first": outputs_list,
    "second": {"pair": outputs_named, "model": outputs_model},
    "third": (outputs_dataclass, outputs_plain_dataclass, None, "not a tensor"),
}

assert outputs_model.logits is logits
opaque = torch.utils._pytree.tree_leaves(outputs_plain_dataclass)
assert opaque[0] is outputs_plain_dataclass  # not registered: taken for a leaf itself
known = torch.utils._pytree.tree_leaves(outputs_dataclass)
assert known[0] is logits and known[1] is features

leaves = torch.utils._pytree.tree_leaves(outputs)
tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
opaque = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, torch.Tensor)]
assert len(tensors) == 6  # two each in the list, the named tuple and the registered dataclass
assert opaque == ["ModelOutput", "PlainPair", "NoneType", "str"]
print("tensors that PyTorch finds in `outputs`:", len(tensors))
print("and what it does not look into:", opaque)
