"""Drop-in for torchviz 0.0.3: change `from torchviz import make_dot` to `from gradviz.torchviz import make_dot`.

Where torchviz raises (deep graphs, freed graphs, modified saved tensors, nested outputs, Python 3.12 without setuptools) or
disturbs the graph (it unpacks saved tensors, which runs hooks and recomputes checkpoints), this returns a picture and leaves
the graph as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

import torch

from gradviz.draw.torchviz import Digraph, torchviz_digraph
from gradviz.walker.outputs import flatten
from gradviz.walker.tensors import base_of
from gradviz.walker.walk import capture


def make_dot(
    var: object,
    params: Mapping[str, torch.Tensor] | None = None,
    show_attrs: bool = False,
    show_saved: bool = False,
    max_attr_chars: int = 50,
) -> Digraph:
    """The autograd graph of `var` in torchviz's style, as a `graphviz.Digraph`.

    Blue boxes are leaves whose `.grad` backward fills, grey ones backward functions, orange ones saved tensors, green ones the
    outputs, dark green ones the bases that outputs are views of.

    Args:
        var: an output tensor, or any nesting of tensors.
        params: tensors by name, to name the leaves.
        show_attrs: list the non-tensor attributes that backward functions saved.
        show_saved: draw saved tensors; those of custom Functions are always drawn.
        max_attr_chars: longest attribute value shown, at least 3.

    Raises NotATensorError when there is no tensor in `var`, or when a value of `params` is not a tensor.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> "MulBackward0" in make_dot(x * 2, params={"x": x}).source
    True

    Source: https://github.com/szagoruyko/pytorchviz
    """
    outputs = list({id(tensor): tensor for _, tensor in flatten(var) if isinstance(tensor, torch.Tensor)}.values())
    graph = capture(outputs, params=params, need_graph=False, open_compiled=False)
    bases: dict[int, int] = {}
    same_base = {}
    for number, tensor in enumerate(outputs):
        base = base_of(tensor)
        if base is not None:
            same_base[number] = bases.setdefault(id(base), number)
    names = {id(tensor): name for name, tensor in (params or {}).items()}
    return torchviz_digraph(
        graph,
        root_names=[names.get(id(tensor), "") for tensor in outputs],
        same_base=same_base,
        show_attrs=show_attrs,
        show_saved=show_saved,
        max_attr_chars=max_attr_chars,
    )


def make_dot_from_trace(trace: object) -> NoReturn:
    """torchviz keeps this name only to say that it is gone, and so does gradviz. Always raises NotImplementedError."""
    raise NotImplementedError(
        "graphs of torch.jit traces are not drawn here: use torch.utils.tensorboard's SummaryWriter.add_graph, "
        "or pass an output tensor to make_dot"
    )


__all__ = ["make_dot", "make_dot_from_trace"]
