"""Where a walk begins: the tensors in what a model returned, and the nodes that made
them.

`flatten` understands everything torch's pytree knows, and also what it does not:
dataclasses and mappings that nobody registered, Hugging Face's ModelOutput, objects
with tensors as attributes. Iterative, so nesting may be deep or even circular.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.graph import GradientEdge
from torch.utils import _pytree

from gradviz.errors import NotATensorError
from gradviz.walker.private import Node
from gradviz.walker.tensors import base_of, grad_fn_of, why_no_graph
from gradviz.wording import few_reasons

if TYPE_CHECKING:
    from gradviz.walker.names import Names

Output = torch.Tensor | GradientEdge
"""Where a walk may begin: a tensor, or one result of a node."""

_OPAQUE = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    type,
    torch.nn.Module,
    torch.Generator,
)

_WORTH_ENTERING = (torch.Tensor, list, tuple, deque, Mapping)

_Path = tuple[Any, str] | None
"""The path to a container and the last step from there. Linked, so that deep nesting
does not copy long texts.
"""

_LEAVE = object()


def flatten(outputs: object) -> list[tuple[str, Output]]:
    """All tensors in `outputs` with their paths ("" for a bare tensor, "['loss']",
    "[0].logits"), in order.

    A `grad_fn` or a GradientEdge counts as a tensor; that of a leaf becomes the leaf.
    What is reached twice is listed twice; a container that holds itself is entered
    once. Raises NotATensorError when there is no tensor in it.
    """
    tensors: list[tuple[str, Output]] = []
    inside: set[int] = set()  # the containers around the current value
    stack: list[tuple[_Path | object, object]] = [(None, outputs)]

    while stack:
        path, value = stack.pop()
        if path is _LEAVE:
            inside.discard(id(value))
        elif isinstance(value, torch.Tensor):
            tensors.append((_written(path), value))
        elif is_node(value) or isinstance(value, GradientEdge):
            tensors.append((_written(path), _result(value)))
        elif value is not None and id(value) not in inside:
            children = [((path, key), child) for key, child in _children(value)]
            if children:
                inside.add(id(value))
                # taken off again after the children: a container may occur twice, but
                # not in itself
                stack.append((_LEAVE, value))
                stack.extend(reversed(children))

    if not tensors:
        raise NotATensorError(_not_a_tensor(outputs))

    return tensors


def is_node(value: object) -> bool:
    """Whether this is a node of the graph, a `grad_fn`. Not all of them are instances
    of torch's own class of nodes.
    """
    kind = type(value)
    return hasattr(kind, "next_functions") and hasattr(kind, "register_prehook")


def as_tensor(output: Output) -> torch.Tensor:
    """The tensor, or for a node's result one of its shape, dtype and device with other
    numbers, and without storage for them.
    """
    if isinstance(output, torch.Tensor):
        return output
    metadata = output.node._input_metadata[output.output_nr]
    return torch.zeros((), dtype=metadata.dtype, device=metadata.device).expand(
        tuple(metadata.shape)
    )


def _result(value: Any) -> Output:
    edge = value if isinstance(value, GradientEdge) else GradientEdge(value, 0)
    if type(edge.node).__name__ == "AccumulateGrad":
        variable = getattr(edge.node, "variable", None)
    else:
        variable = None
    return edge if variable is None else variable


def _written(path: Any) -> str:
    steps: list[str] = []
    while path is not None:
        path, step = path
        steps.append(step)
    return "".join(reversed(steps))


def _children(value: object) -> Iterable[tuple[str, object]]:
    """The values inside one container, with the step of the path to each; nothing for
    an opaque object.
    """
    if isinstance(value, _OPAQUE):
        return ()

    # before Mapping: a ModelOutput is both, and people write `.logits`
    if dataclasses.is_dataclass(value):
        return [
            (f".{field.name}", getattr(value, field.name, None))
            for field in dataclasses.fields(value)
        ]

    if isinstance(value, Mapping):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, (list, tuple, deque)):
        return [(f"[{i}]", item) for i, item in enumerate(value)]

    # a container that the user registered with torch
    registered = _pytree.SUPPORTED_NODES.get(type(value))
    if registered is not None:
        return [
            (f"[{i}]", item) for i, item in enumerate(registered.flatten_fn(value)[0])
        ]

    # Any other object: its own tensors and containers, but not the objects it knows,
    # which could be the whole program.
    attributes = vars(value) if hasattr(value, "__dict__") else {}
    return [
        (f".{name}", item)
        for name, item in attributes.items()
        if isinstance(item, _WORTH_ENTERING)
    ]


def _not_a_tensor(outputs: object) -> str:
    kind = type(outputs).__name__
    is_module = isinstance(outputs, torch.nn.Module)
    if is_module or (callable(outputs) and not _children(outputs)):
        if is_module:
            noun = f"module ({kind})"
        else:
            noun = f"function ({getattr(outputs, '__name__', kind)})"
        return f"this is a {noun}, not a tensor: call it and pass what it returns"
    if isinstance(outputs, (int, float, complex)):
        return f"this is a Python {kind}, which has no graph: pass the tensor itself (without .item() or float())"
    return f"there is no tensor in this {kind}: pass a tensor, or any nesting of dict, list, tuple or dataclass with tensors"


# -- the nodes that made them ----------------------------------------------------------


class LiveRoot(NamedTuple):
    """An output and the node that made it, while both are alive. `tensor` is None where
    only the node was given; `base` is the tensor that it is a view of.
    """

    name: str
    tensor: torch.Tensor | None
    base: torch.Tensor | None
    node: Node | None
    output: int = 0
    why: str = ""


def find_root(name: str, output: Output) -> LiveRoot:
    """The node that made an output, or why there is none."""
    if not isinstance(output, torch.Tensor):
        return LiveRoot(name, None, None, output.node, output.output_nr)

    base = base_of(output)
    try:
        node = grad_fn_of(output, asked_for=True)
    except RuntimeError as error:
        # torch refuses: a view whose base was modified in a way it does not allow
        why = f"has a grad_fn that torch refuses to give: {str(error).splitlines()[0]}"
        return LiveRoot(name, output, base, None, why=why)

    if node is None:
        return LiveRoot(name, output, base, None, why=why_no_graph(output))

    return LiveRoot(name, output, base, node, output.output_nr)


def root_name(variable: str, path: str, output: Output, names: Names) -> str:
    """The variable's name plus the path inside it: "y", "out['loss']"; "output" where
    there is no variable.

    What is known by its node only is called as the tensor that the node made.
    """
    if variable:
        return variable + path
    if not isinstance(output, torch.Tensor):
        result_names = (
            name
            for number, name in names.results.get(output.node, ())
            if number == output.output_nr
        )
        return next(result_names, "output" + path)
    leaf_names = names.leaf(output)
    return leaf_names[0] if leaf_names and not path else "output" + path


def no_graph(roots: Sequence[LiveRoot]) -> str:
    """What to tell the user when none of the outputs has a graph."""
    if len(roots) == 1:
        return f"{roots[0].name} has no graph to show: it {roots[0].why}"
    lines = few_reasons([(root.name, root.why) for root in roots], 10)
    return "\n".join([f"none of the {len(roots)} outputs has a graph to show:", *lines])


def starts(roots: Sequence[LiveRoot]) -> list[Node]:
    """Where a walk begins: the nodes of the roots, then those of the tensors that roots
    are views of.
    """
    nodes = [root.node for root in roots]
    nodes += [grad_fn_of(root.base) for root in roots if root.base is not None]
    return [node for node in nodes if node is not None]
