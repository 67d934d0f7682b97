"""Names for leaves and intermediate results, found without asking the user for them.

Sources, the first that knows a tensor wins: `model=` (parameters and buffers), `params=`, then the caller's variables, inner
namespace first: modules, tensors, and one level of list, dict or tuple of tensors. Reading the variables creates no
autograd node and leaves no reference behind.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any

import torch

from gradviz.capture.private import Node, without_subclasses
from gradviz.capture.tensors import base_of, grad_fn_of, storage_of
from gradviz.errors import NotATensorError

Namespace = Mapping[str, object]
_OPTIMIZED = 0x1  # CO_OPTIMIZED: a function's frame, whose locals live in fast slots
_STRENGTH = ("input", "output", "buffer", "parameter")
_NAMING_KEYS = (str, int, float, bool, type(None))


class Names:
    """Who is called what: `leaf` by the tensor itself, `result` by the node and output that made it.

    `owner_of` maps a storage's identity to "parameter", "buffer", "input" or "output" for everything that the caller holds.
    `results` are the names by node.
    Keeps the named tensors referenced, so it must not outlive the walk.
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        params: Mapping[str, torch.Tensor] | None = None,
        variables: Sequence[Namespace] = (),
    ) -> None:
        self.owner_of: dict[int, str] = {}
        self._tensors: dict[int, tuple[torch.Tensor, tuple[str, ...], int]] = {}
        self._aliases: dict[int, list[str]] = {}
        self.results: dict[Node, list[tuple[int, str]]] = {}
        self.hooked: set[Node] = set()
        self._buffers: set[int] = set()
        self._parameters: set[int] = set()
        with without_subclasses():
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
        """What else the caller's variables call a tensor: those that are less telling, such as places in a tuple."""
        return tuple(self._aliases.get(id(tensor), ()))

    def result(self, node: Node) -> tuple[str, ...]:
        """Names of the tensors that `node` made, by output number."""
        return tuple(name for _, name in sorted(self.results.get(node, ()), key=lambda item: item[0]))

    def kind(self, tensor: torch.Tensor) -> str:
        """Whether a leaf is a "parameter", a "buffer" or an "input"."""
        if isinstance(tensor, torch.nn.Parameter) or id(tensor) in self._parameters:
            return "parameter"
        return "buffer" if id(tensor) in self._buffers else "input"

    def _sources(
        self,
        model: torch.nn.Module | None,
        params: Mapping[str, torch.Tensor] | None,
        variables: Sequence[Namespace],
    ) -> Iterator[Iterable[tuple[str, torch.Tensor]]]:
        if model is not None:
            yield self._of_module("", model)
        if params is not None:
            yield _checked(params)
        scanned = [_scan(namespace) for namespace in variables]
        yield (item for name, module in _outermost(scanned) for item in self._of_module(name + ".", module))
        for _, tensors, elements in scanned:
            yield tensors
            yield elements

    def _of_module(self, prefix: str, module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
        for name, parameter in module.named_parameters(remove_duplicate=False):
            self._parameters.add(id(parameter))
            yield prefix + name, parameter
        for name, buffer in module.named_buffers(remove_duplicate=False):
            self._buffers.add(id(buffer))
            yield prefix + name, buffer

    def _add(self, name: str, tensor: torch.Tensor, rank: int) -> None:
        known = self._tensors.get(id(tensor))
        if known is None:
            self._tensors[id(tensor)] = (tensor, (name,), rank)
        elif known[2] == rank and name not in known[1]:  # the same source names it twice: a tied parameter
            self._tensors[id(tensor)] = (tensor, (*known[1], name), rank)
        elif name not in known[1]:
            self._aliases.setdefault(id(tensor), []).append(name)

    def _tell_apart(self) -> None:
        """Take another name for a tensor whose own one also means another tensor, as the argument of a function may."""
        meant = Counter(name for _, names, _ in self._tensors.values() for name in names)
        for key, (tensor, names, rank) in list(self._tensors.items()):
            if all(meant[name] > 1 for name in names):
                other = next((name for name in self._aliases.get(key, ()) if not meant[name]), None)
                if other is not None:
                    self._tensors[key] = (tensor, (other,), rank)
                    self._aliases[key] = [*names, *(name for name in self._aliases[key] if name != other)]
                    meant.update([other])
                    meant.subtract(names)

    def _index(self) -> None:
        for tensor, names, _ in self._tensors.values():
            node = _grad_fn(tensor)
            storage = storage_of(tensor)
            if storage is not None:
                self._own(storage[0], self._owner(tensor, node))
            if node is not None:
                self.results.setdefault(node, []).extend((tensor.output_nr, name) for name in names)
                if tensor._backward_hooks:
                    self.hooked.add(node)

    def _owner(self, tensor: torch.Tensor, node: Node | None) -> str:
        """Whose memory this is. A view that was computed says nothing by itself: its base does."""
        if not tensor.requires_grad:
            return self.kind(tensor)
        base = base_of(tensor)
        if base is not None:
            node, tensor = _grad_fn(base), base
        return "output" if node is not None else self.kind(tensor)

    def _own(self, storage: int, owner: str) -> None:
        known = self.owner_of.get(storage)
        if known is None or _STRENGTH.index(owner) > _STRENGTH.index(known):
            self.owner_of[storage] = owner


def _grad_fn(tensor: torch.Tensor) -> Node | None:
    try:
        return grad_fn_of(tensor)
    except RuntimeError:
        return None


def _checked(params: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, value in params.items():
        if not isinstance(value, torch.Tensor):
            raise NotATensorError(f"params[{name!r}] is a {type(value).__name__}, not a tensor")
        yield name, value


_Named = list[tuple[str, Any]]


_Scanned = tuple[_Named, _Named, _Named]


def _scan(namespace: Namespace) -> _Scanned:
    """Modules, tensors, and tensors one container deep, among the variables of one namespace.

    Asks types only, never `isinstance`: a lazy proxy among the variables would run its owner's code.
    """
    modules: _Named = []
    tensors: _Named = []
    elements: _Named = []
    for name, value in list(namespace.items()):
        if name.startswith("_") or name in ("In", "Out"):  # private, and IPython's history
            continue
        kind = type(value)
        if issubclass(kind, torch.nn.Module):
            modules.append((name, value))
        elif issubclass(kind, torch.Tensor):
            tensors.append((name, value))
        elif issubclass(kind, (list, tuple, dict)):
            _scan_container(name, value, modules, elements)
    return modules, tensors, elements


def _scan_container(name: str, value: Any, modules: _Named, elements: _Named) -> None:
    if isinstance(value, dict):
        items: Iterable[tuple[Any, Any]] = list(dict.items(value))
    else:
        items = enumerate(tuple.__iter__(value) if isinstance(value, tuple) else list.__iter__(value))
    wanted: dict[type, _Named | None] = {}  # by type, because a list of a million numbers is nothing unusual
    for key, item in items:
        kind = type(item)
        if kind not in wanted:
            wanted[kind] = (
                elements if issubclass(kind, torch.Tensor) else modules if issubclass(kind, torch.nn.Module) else None
            )
        into = wanted[kind]
        if into is not None and type(key) in _NAMING_KEYS:  # other keys have a `repr` of unknown length and effect
            into.append((f"{name}[{key!r}]", item))


def _outermost(scanned: Sequence[_Scanned]) -> _Named:
    """The modules that no other one contains, each under its first name, so that a parameter has one name."""
    modules = [item for found, _, _ in scanned for item in found]
    kept: _Named = []
    inside: set[int] = set()
    for name, module in sorted(modules, key=lambda item: -sum(1 for _ in item[1].modules())):
        if id(module) not in inside:
            kept.append((name, module))
            inside.update(id(child) for child in module.modules())
    return kept


def outermost_modules(
    model: torch.nn.Module | None, variables: Sequence[Namespace]
) -> list[tuple[str, torch.nn.Module]]:
    """The modules that the caller knows with their names: `model` without one, then the variables."""
    given = [("", model)] if model is not None else []
    return given + _outermost([_scan(namespace) for namespace in variables])


def module_paths(model: torch.nn.Module | None, variables: Sequence[Namespace]) -> dict[int, str]:
    """The caller's path for every module it knows, by identity: below `model` as the model names it, else by variable."""
    found: dict[int, str] = {}
    for name, outermost in outermost_modules(model, variables):
        for path, module in outermost.named_modules():
            found.setdefault(id(module), f"{name}.{path}" if name and path else name or path)
    return found


def namespaces(frame: FrameType | None) -> list[dict[str, object]]:
    """Copies of the local and global variables of a frame, inner first. Leaves nothing behind in the frame.

    Up to Python 3.12 reading `f_locals` of a running function fills a dict that the frame keeps until it ends, so a later
    `del y` of the user's would free nothing. It is emptied again, unless the user holds it from a `locals()` call.
    """
    if frame is None:
        return []
    live = frame.f_locals  # read once: reading it again would fill it again
    if live is frame.f_globals:
        return [dict(live)]
    local = dict(live)
    if sys.version_info < (3, 13) and frame.f_code.co_flags & _OPTIMIZED and sys.getrefcount(live) <= 3:
        live.clear()
    return [local, dict(frame.f_globals)]
