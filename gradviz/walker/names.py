"""Names of tensors, found without asking the user for them.

Sources of names, the first that knows a tensor wins: `model=` (parameters and buffers),
`params=`, then what the caller's variables lead to (`variables.scan`): modules, then
tensors, the better name first. Reading the variables creates no autograd node and
leaves no reference behind.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count, groupby

import torch

from gradviz.armour.isolation import isolated
from gradviz.errors import NotATensorError
from gradviz.graph import StorageKind
from gradviz.variables.objects import (
    Table,
    children,
    every_path,
    is_compiled,
    joined,
    members,
    submodules,
    unwrapped,
)
from gradviz.variables.scanner import ITSELF, NamedValue, Namespace, scan
from gradviz.walker.private import Node, fsdp_parameters
from gradviz.walker.tensors import base_of, grad_fn_of, storage_of

_REGISTERED: tuple[tuple[Table, StorageKind], ...] = (
    ("_parameters", "parameter"),
    ("_buffers", "buffer"),
)
_STRENGTH: tuple[StorageKind, ...] = ("input", "output", "buffer", "parameter")


class Names:
    """Who is called what: `leaf` by the tensor itself, `result` by the node and output
    that made it.

    `owner_of` maps a storage's identity to "parameter", "buffer", "input" or "output"
    for everything that the caller holds. `modules` are the outermost ones that the
    caller knows with their names: `model`, then those the variables lead to. `results`
    are the names by node. Keeps the named tensors referenced, so it must not outlive the
    walk.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        variables: Sequence[Namespace] = (),
    ) -> None:
        self.owner_of: dict[int, StorageKind] = {}
        self._tensors: dict[int, tuple[torch.Tensor, tuple[str, ...], int]] = {}
        self._aliases: dict[int, list[str]] = {}
        self.modules: _Named = []
        self.results: dict[Node, list[tuple[int, str]]] = {}
        self.hooked: set[Node] = set()
        self._kinds: dict[int, StorageKind] = {}

        with isolated():
            for rank, source in enumerate(self._sources(model, params, variables)):
                for name, tensor in source:
                    self._add(name, tensor, rank)
            self._tell_apart()
            self._index()

    def named(self) -> Iterator[tuple[torch.Tensor, tuple[str, ...]]]:
        """Every tensor that has a name, with all its names."""
        for tensor, names, _ in self._tensors.values():
            yield tensor, names

    def leaf(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """All names of a tensor, none if nobody knows it."""
        entry = self._tensors.get(id(tensor))
        return entry[1] if entry else ()

    def aliases(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """What else the caller's variables call a tensor: those that are less telling,
        such as places in a tuple.
        """
        return tuple(self._aliases.get(id(tensor), ()))

    def called(self, name: str) -> torch.Tensor | None:
        """The tensor that the caller calls so; None where there is none."""
        return next(
            (tensor for tensor, names, _ in self._tensors.values() if name in names),
            None,
        )

    def result(self, node: Node) -> tuple[str, ...]:
        """Names of the tensors that `node` made, by output number."""
        return tuple(
            name
            for _, name in sorted(self.results.get(node, ()), key=lambda item: item[0])
        )

    def each_result(self, node: Node) -> str:
        """One name for each tensor that `node` made, where several have one: `q, k, v`."""
        first = dict(reversed(self.results[node]))
        named = sorted(first.items())
        return ", ".join(name for _, name in named) if len(named) > 1 else ""

    def kind(self, tensor: torch.Tensor) -> StorageKind:
        """Whether a leaf is a "parameter", a "buffer" or an "input"."""
        if isinstance(tensor, torch.nn.Parameter):
            return "parameter"
        return self._kinds.get(id(tensor), "input")

    def _sources(
        self,
        model: torch.nn.Module | None,
        params: Mapping[str, torch.Tensor] | None,
        variables: Sequence[Namespace],
    ) -> Iterator[Iterable[tuple[str, torch.Tensor]]]:
        values = scan(variables, model)
        self.modules = outermost(values, model)
        # what comes first names a tensor; later sources only add aliases
        for name, module in self.modules:
            if module is model:
                yield self._of_module(name, module)
        if params is not None:
            yield _checked(params)

        others = (named for named in self.modules if named[1] is not model)
        yield (
            item for name, module in others for item in self._of_module(name, module)
        )
        named = [item for item in values if item.kind == "tensor"]

        for _, equals in groupby(
            sorted(named, key=lambda item: item.rank), key=lambda item: item.rank
        ):
            yield ((item.name, item.value) for item in equals)

    def _of_module(
        self, prefix: str, root: torch.nn.Module
    ) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor, kind in registered(prefix, root):
            # one that is a buffer elsewhere, too, counts as a parameter
            if self._kinds.get(id(tensor)) != "parameter":
                self._kinds[id(tensor)] = kind
            yield name, tensor
        for name, shard, full in gathered(prefix, root):
            self._kinds |= {id(full): "parameter", id(shard): "parameter"}
            yield from (
                (name, tensor) for tensor in (full, shard) if tensor is not None
            )

    def _add(self, name: str, tensor: torch.Tensor, rank: int) -> None:
        entry = self._tensors.get(id(tensor))
        if entry is None:
            self._tensors[id(tensor)] = (tensor, (name,), rank)
        elif entry[2] == rank and name not in entry[1]:
            # the same source names it twice: a tied parameter
            self._tensors[id(tensor)] = (tensor, (*entry[1], name), rank)
        elif name not in entry[1]:
            self._aliases.setdefault(id(tensor), []).append(name)

    def _tell_apart(self) -> None:
        """Take another name for a tensor whose own one also means another tensor, as
        the argument of a function may.
        """
        meant = Counter(
            name for _, names, _ in self._tensors.values() for name in names
        )
        for key, (tensor, names, rank) in list(self._tensors.items()):
            # as `x`, which is the argument of two functions that run
            if all(meant[name] > 1 for name in names):
                other = next(
                    (name for name in self._aliases.get(key, ()) if not meant[name]),
                    None,
                )
                if other is not None:
                    self._tensors[key] = (tensor, (other,), rank)
                    self._aliases[key] = [
                        *names,
                        *(name for name in self._aliases[key] if name != other),
                    ]
                    meant.update([other])
                    meant.subtract(names)

    def _index(self) -> None:
        for tensor, names, _ in self._tensors.values():
            node = grad_fn_of(tensor)
            storage = storage_of(tensor)
            if storage is not None:
                owner = self._owner(tensor, node)
                strongest = self.owner_of.get(storage[0], owner)
                # several tensors may share the storage: the most telling one says whose
                # it is
                self.owner_of[storage[0]] = max(strongest, owner, key=_STRENGTH.index)

            if node is not None:
                self.results.setdefault(node, []).extend(
                    (tensor.output_nr, name) for name in names
                )
                if tensor._backward_hooks:
                    self.hooked.add(node)

    def _owner(self, tensor: torch.Tensor, node: Node | None) -> StorageKind:
        """Whose memory this is. A view that was computed says nothing by itself: its
        base does.
        """
        if not tensor.requires_grad:
            return self.kind(tensor)
        base = base_of(tensor)
        if base is not None:
            # a computed view has a grad_fn whoever owns the memory
            node, tensor = grad_fn_of(base), base
        return "output" if node is not None else self.kind(tensor)


def _checked(params: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in params.items():
        if not isinstance(value, torch.Tensor):
            raise NotATensorError(
                f"params[{name!r}] is a {type(value).__name__}, not a tensor"
            )
        yield name, value


def registered(
    prefix: str, root: torch.nn.Module
) -> Iterator[tuple[str, torch.Tensor, StorageKind]]:
    """Parameters, then buffers of a module and those inside it, under every path that
    leads to them.
    """
    modules = list(every_path(root))
    for table, kind in _REGISTERED:
        for path, module in modules:
            for name, tensor in members(module, table):
                yield joined(prefix, joined(path, name)), tensor, kind


def gathered(
    prefix: str, root: torch.nn.Module
) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    """Parameters that FSDP2 shards: the name in the module, the shard, and the whole
    one that a graph holds, if it was gathered.
    """
    if "torch.distributed.fsdp" not in sys.modules:
        return
    path_of = {id(module): path for path, module in every_path(root)}
    for parameter in fsdp_parameters(root):
        path = path_of.get(id(parameter.owner))
        if path is not None:
            yield (
                joined(prefix, joined(path, parameter.attribute)),
                parameter.shard,
                parameter.whole,
            )


_Named = list[tuple[str, torch.nn.Module]]


def outermost(
    values: Sequence[NamedValue], model: torch.nn.Module | None = None
) -> _Named:
    """The modules that no other one contains, each under its best name, so that a
    parameter has one name.

    `model` comes first. A variable comes before what only an object deep
    inside others holds, then the larger module.
    """
    modules = [
        (named, list(submodules(named.value)))
        for named in values
        if named.kind == "module"
    ]
    modules.sort(
        key=lambda item: (
            item[0].private,
            item[0].level > 1,
            # the model before a part of it that another variable holds
            -_size(item[1]),
            item[0].rank,
        )
    )
    kept = [(named.name, model) for named in values if named.value is model][:1]
    inside = {id(module) for _, module in below(kept)}

    for named, parts in modules:
        if (
            id(unwrapped(named.value)) not in inside
            and _wrapped(named.value) not in inside
        ):
            kept.append((_called(named, (name for name, _ in kept)), named.value))
            inside.update(id(module) for _, module in parts)

    return kept


def below(outer: _Named) -> Iterator[tuple[str, torch.nn.Module]]:
    """These modules and those inside them, with the whole path of each."""
    return (
        (joined(name, path), module)
        for name, root in outer
        for path, module in submodules(root)
    )


def _size(parts: Sequence[tuple[str, torch.nn.Module]]) -> int:
    """How many modules these are, without torch's wrappers of compiled ones: what a
    wrapper wraps has the better name.
    """
    return sum(not is_compiled(module) for _, module in parts)


def _wrapped(module: torch.nn.Module) -> int | None:
    """The identity of the module that torch's wrapper of a compiled one wraps; None for
    any other module.
    """
    if is_compiled(module):
        return next((id(inside) for _, inside in children("", module)), None)
    return None


def _called(named: NamedValue, taken: Iterable[str]) -> str:
    """What a module is called. In its own method it is `self`, and so is every other
    one in its own: the class tells more.
    """
    if named.name in ITSELF:
        return distinct(type(named.value).__name__, set(taken))
    return named.name


def distinct(name: str, taken: Container[str]) -> str:
    """`name`, or with a number behind it where it is taken."""
    candidate, numbers = name, count(2)
    while candidate in taken:
        candidate = f"{name}_{next(numbers)}"
    return candidate


def outermost_modules(
    model: torch.nn.Module | None, variables: Sequence[Namespace]
) -> _Named:
    """The modules that the caller knows with their names: `model`, then those the
    variables lead to.
    """
    return outermost(scan(variables, model), model)


def module_paths(
    model: torch.nn.Module | None, variables: Sequence[Namespace]
) -> dict[int, str]:
    """The caller's path for every module it knows, by identity."""
    path_of: dict[int, str] = {}
    values = scan(variables, model)
    for path, module in below(outermost(values, model)):
        path_of.setdefault(id(module), path)
    for named in values:
        wrapped = _wrapped(named.value) if named.kind == "module" else None
        if wrapped in path_of:
            path_of.setdefault(id(named.value), path_of[wrapped])
    return path_of
