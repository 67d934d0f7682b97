"""The outputs to look at: found by a name, or as the tensors that nothing depends on,
and read while they are alive.

Reads live variables and calls a function that the user named; knows nothing of how the
script was run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from gradviz.errors import NoGraphError, NotATensorError, TargetError, did_you_mean
from gradviz.variables.objects import unwrapped
from gradviz.variables.scanner import NamedValue, Namespace, scan, value_of
from gradviz.wording import few_reasons

if TYPE_CHECKING:
    from gradviz.recording.record import Recording
    from gradviz.run.target import Target
    from gradviz.walker.places import Attribution

_ABSENT = object()
_SHOWN = 20
_INDEX = re.compile(r"""\[\s*(["']?)([^]"'.]+)\1\s*\]""")


@dataclass(frozen=True, slots=True)
class LiveOutputs:
    """The outputs that were looked for, while they are alive. Keep nothing of it: the
    script's tensors must die with the script.

    `variables` are the namespaces that know names, innermost first. `names` are names
    for the outputs where no variable holds them all. `recording` knows module calls and
    source lines; it is None when nothing was recorded. `notes` is what a reader of the
    graph must know about how it was found. `frame` is the one that torch called the
    engine from at backward call `call`; both are None when the script has ended.
    `create_graph`, `accumulates` and `inputs` are those of the call; `ran` is whether the engine
    has run already.
    """

    outputs: Any
    variables: Sequence[Namespace]
    title: str
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    recording: Recording | None = None
    frame: FrameType | None = None
    call: int | None = None
    create_graph: bool = False
    ran: bool = False
    accumulates: bool = True
    inputs: Sequence[Any] = ()

    @property
    def attribution(self) -> Attribution | None:
        """Which module call and line made each node, where that was recorded."""
        if self.recording is not None:
            return self.recording.attribution(None, self.variables)
        return None


def lookup(
    name: str, namespaces: Sequence[Namespace], place: str, *, classes: bool = False
) -> object:
    """The value of a dotted name (`net[0]` as `net.0`), the innermost namespace first.
    Raises TargetError with near names, those of `classes` too if one is looked for.
    """
    first, *rest = _INDEX.sub(r".\2", name).split(".")
    value = value_of(first, namespaces, _ABSENT)

    if value is _ABSENT:
        hidden = (ModuleType,) if classes else (ModuleType, type)
        names = [
            candidate
            for space in namespaces
            for candidate, item in space.items()
            if not candidate.startswith("_") and type(item) not in hidden
        ]
        raise TargetError(
            f"{place} has no variable {first!r}. {did_you_mean(first, names, what='variables')}"
        )

    path = first
    for part in rest:
        inner = _step(value, part)
        if inner is _ABSENT:
            hint = did_you_mean(part, _parts(value), what="attributes")
            raise TargetError(
                f"{path} in {place} is a {type(value).__name__} and has no {part!r}. {hint}"
            )
        value, path = inner, f"{path}.{part}"

    return value


def tensor_called(name: str, namespaces: Sequence[Namespace], place: str) -> object:
    """What `lookup` finds, else the only parameter whose path ends so: `0.weight` of
    `net.0.weight`.
    """
    from gradviz.walker.names import outermost_modules, registered

    try:
        return lookup(name, namespaces, place)
    except TargetError as error:
        path = _INDEX.sub(r".\2", name)
        known = {
            path: tensor
            for prefix, model in outermost_modules(None, namespaces)
            for path, tensor, _ in registered(prefix, model)
        }
        ending = {
            id(known[one]): known[one] for one in known if one.endswith(f".{path}")
        }
        if len(ending) == 1:
            return ending.popitem()[1]
        near = did_you_mean(path, known)
        if ending or "Did you mean" in str(error) or "Did you mean" not in near:
            raise
        raise TargetError(f"{place} has no {name}. {near}") from None


def outputs_of(value: object, name: str, place: str) -> object:
    """The tensors of a value: itself, or what it returns when it is a function. Runs
    the user's function.

    Raises NotATensorError when there is no tensor.
    """
    import torch

    from gradviz.walker.outputs import is_node

    if (
        not callable(value)
        or isinstance(value, (type, torch.nn.Module, torch.Tensor))
        or is_node(value)
    ):
        return value
    return value()


def check_tensors(outputs: object, name: str, place: str) -> None:
    """Raises NotATensorError, which says what `outputs` is, when there is no tensor in
    it.
    """
    from gradviz.walker.outputs import flatten

    if isinstance(outputs, type):
        raise NotATensorError(
            f"{name} in {place}: this is a class ({outputs.__name__}), not a tensor. "
            "To run it once, give the shape of its input: --input 1,3,224,224"
        )
    try:
        flatten(outputs)
    except NotATensorError as error:
        raise NotATensorError(f"{name} in {place}: {error}") from None


def final_tensors(namespace: Namespace, lead: str, *advice: str) -> dict[str, Any]:
    """The tensors with a graph among global variables that no other such tensor depends
    on, by name.

    Raises NoGraphError between `lead` and `advice`, which lists the tensors seen and
    why each has no graph.
    """
    named_tensors = [named for named in scan([namespace]) if named.kind == "tensor"]
    seen = _distinct(named_tensors)
    outputs = _not_depended_on(
        _distinct(named for named in named_tensors if not named.level)
    ) or _not_depended_on(seen)
    if not outputs:
        raise NoGraphError(_no_graph(seen, lead, advice))
    return outputs


def _not_depended_on(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Those with a graph that are not part of another one's graph."""
    from gradviz.walker.walk import capture

    if not tensors:
        return {}
    graph = capture(list(tensors.values()), saved=False, need_graph=False).graph
    used = {(edge.producer, edge.output) for edge in graph.edges}
    # what another output was computed from is on the way to that one
    return {
        name: tensor
        for (name, tensor), root in zip(tensors.items(), graph.roots)
        if root.node is not None
        and root.node not in graph.leaf_of
        and (root.node, root.output) not in used
    }


def _step(value: object, part: str) -> object:
    """An attribute, a key or an element; of a wrapper of data parallel also what the
    module in it has.
    """
    direct = _own(value, part)
    inside = unwrapped(value) if direct is _ABSENT else value
    return direct if inside is value else _own(inside, part)


def _own(value: object, part: str) -> object:
    # a key before an attribute: `batch.keys` may be data
    if isinstance(value, Mapping) and part in value:
        return value[part]
    if part.isdigit():
        if isinstance(value, (list, tuple)) and int(part) < len(value):
            return value[int(part)]
        # a numbered child of a Sequential
        return getattr(value, "_modules", {}).get(part, _ABSENT)
    return getattr(value, part, _ABSENT)


def _parts(value: object) -> list[str]:
    if isinstance(value, Mapping):
        names = [str(key) for key in value]
    else:
        names = list(getattr(value, "__dict__", ()))
    for hidden in ("_parameters", "_buffers", "_modules"):
        names += getattr(value, hidden, ())
    return [name for name in names if not name.startswith("_")]


def _distinct(named_tensors: Iterable[NamedValue]) -> dict[str, Any]:
    """Each tensor once, under its first name."""
    first: dict[int, NamedValue] = {}
    for named in named_tensors:
        # names come shortest first
        first.setdefault(id(named.value), named)
    return {named.name: named.value for named in first.values()}


def _no_graph(seen: Mapping[str, Any], lead: str, advice: Sequence[str]) -> str:
    from gradviz.armour.isolation import isolated
    from gradviz.walker.tensors import why_no_graph

    with isolated():
        reasons = [(name, why_no_graph(tensor)) for name, tensor in seen.items()]
    noun = "tensor with a graph. Seen:" if seen else "variable that holds a tensor."
    return "\n".join([f"{lead} {noun}", *few_reasons(reasons, _SHOWN), *advice])


def no_graph_words(target: Target, namespace: Namespace) -> list[str]:
    """The lead of the message for a target in which no tensor is left, and its advice."""
    from gradviz.run.forward import names_of_modules

    place = target.short
    if target.cell is not None:
        advice = "Call backward() in it, or end it with a tensor that has a graph."
        return [f"{place} called no backward() and assigned no", advice]

    models = [f"{place}:{name}" for name in names_of_modules(namespace)]
    once = "To run a model once, give the shape of its input: {} --input 1,3,224,224"
    return [
        f"{place} called no backward() and has no global",
        *([once.format(models[-1])] if models else ()),
        f"Name what to look at ({place}:NAME, a tensor or a function that returns one), or call backward() on it.",
        "gradviz cannot see child processes; run the training in the main process.",
    ]
