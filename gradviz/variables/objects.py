"""What objects and modules hold, read past their classes: no property, `__getattr__` or
override of the user's runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import GetSetDescriptorType, MemberDescriptorType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, TypeVar, cast

if TYPE_CHECKING:
    import torch

Table = Literal["_modules", "_parameters", "_buffers"]
_MOST_PATHS = 100_000

_mro = type.__dict__["__mro__"].__get__
_name = type.__dict__["__name__"].__get__
# what a class defines, past a metaclass of the user's
_own = type.__dict__["__dict__"].__get__


_Reader = TypeVar("_Reader", bound=Callable[..., Any])


class _Memory(threading.local):
    """What this thread has read since `reading_once`, with what it was read from, so
    that an identity means one thing.
    """

    answers: dict[Any, tuple[tuple[object, ...], Any]] | None = None


_memory = _Memory()


class reading_once:
    """Inside, every module and class is read once: for a stretch in which nothing of
    the user's runs. May be nested.
    """

    def __enter__(self) -> None:
        self._outer = _memory.answers
        _memory.answers = {} if self._outer is None else self._outer

    def __exit__(self, *error: object) -> None:
        _memory.answers = self._outer


def once(function: _Reader) -> _Reader:
    """Remember what a function reads from its arguments, by identity, inside
    `reading_once`. Nobody may change such an answer.
    """

    @wraps(function)
    def read(*values: object) -> Any:
        answers = _memory.answers
        if answers is None:
            return function(*values)
        key = (function, *map(id, values))
        answer = answers.get(key)
        if answer is None:
            answer = answers[key] = values, function(*values)
        return answer[1]

    return cast("_Reader", read)


def own_attributes(value: Any) -> dict[str, Any]:
    """What an object's `__dict__` and slots hold, without running code of its class: a
    copy.
    """
    attributes: dict[str, Any] = {}
    for name, slot in _slots(type(value)):
        try:
            attributes[name] = slot.__get__(value)
        except AttributeError:  # not set
            continue

    # a copy of the items first: another thread may add some meanwhile
    attributes.update(
        [
            (name, item)
            for name, item in list(_own_dict(value).items())
            if type(name) is str
        ]
    )

    return attributes


@once
def _slots(kind: type) -> list[tuple[str, Any]]:
    """The slots of a class and its bases, the bases' first."""
    defined = [_own(base) for base in reversed(_mro(kind)) if "__slots__" in _own(base)]
    slots = [item for namespace in defined for item in list(namespace.items())]
    return [
        (name, slot)
        for name, slot in slots
        if type(slot) is MemberDescriptorType and not name.startswith("__")
    ]


def _own_dict(value: Any) -> dict[Any, Any]:
    """The `__dict__` of an object itself."""
    reader = class_attribute(type(value), "__dict__")
    # a class may put a property there
    attributes = reader.__get__(value) if type(reader) is GetSetDescriptorType else None
    return attributes if type(attributes) is dict else {}


_WRAPPER = "DistributedDataParallel"


_Kind = TypeVar("_Kind")


def is_a(value: object, kind: type[_Kind]) -> TypeGuard[_Kind]:
    """Whether a value's own type is this one or derived from it. `isinstance` asks the
    value, too: a proxy would run.

    >>> class Proxy:
    ...     __class__ = property(lambda self: print("runs") or int)
    >>> is_a(Proxy(), int), isinstance(Proxy(), int)
    runs
    (False, True)
    """
    return issubclass(type(value), kind)


def tensors_in(value: object) -> list[torch.Tensor]:
    """The tensors in what a function is given or returns: itself, or in a list, tuple
    or dict, one container deep.
    """
    import torch

    if is_a(value, torch.Tensor):
        return [value]
    items: Iterable[object] = ()
    # `dict.values`, and not its own method, which may be the user's
    if is_a(value, dict):
        items = dict.values(value)
    elif is_a(value, tuple) or is_a(value, list):
        items = list(value)
    return [item for item in items if is_a(item, torch.Tensor)]


@once
def class_attribute(kind: type, name: str) -> Any:
    """What the class or a base of it defines under a name, itself and not bound; None
    when nobody does.
    """
    return next((_own(base)[name] for base in _mro(kind) if name in _own(base)), None)


def own_class(kind: type) -> dict[str, Any]:
    """What a class itself defines: a copy."""
    return dict(_own(kind))


def submodules(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """A module ("" is its path) and those inside it, each once, as `named_modules` but
    for overrides of it.

    A wrapper of data parallel is left out: the module in it has its path.
    """
    seen: set[int] = set()
    for path, inside in every_path(module):
        if id(inside) not in seen:
            seen.add(id(inside))
            yield path, inside


def every_path(module: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """The same with every path of a module that several others hold."""
    return ((path, inside) for path, inside, _ in paths_with_ancestors(module))


@once
def paths_with_ancestors(
    module: torch.nn.Module,
) -> Sequence[tuple[str, torch.nn.Module, tuple[int, ...]]]:
    """And with the identities of the modules on the path, the last one's included."""
    found: list[tuple[str, torch.nn.Module, tuple[int, ...]]] = []
    stack: list[tuple[str, Any, tuple[int, ...]]] = [("", module, ())]
    while stack and len(found) < _MOST_PATHS:
        path, module, ancestors = stack.pop()
        module = unwrapped(module)
        ancestors = (*ancestors, id(module))
        found.append((path, module, ancestors))
        inside = [
            (child_path, child, ancestors)
            for child_path, child in children(path, module)
        ]
        stack.extend(
            # a module that holds itself would be walked for ever
            child
            for child in reversed(inside)
            if id(child[1]) not in ancestors
        )
    return found


def children(path: str, module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """The modules directly inside a module at `path`, with their paths.

    What `torch.compile(module)` wraps has the wrapper's own path: code may leave the
    attribute between them out, too.
    """
    modules = members(module, "_modules")
    if is_compiled(module):
        # `compiled.fc` and `compiled._orig_mod.fc` are one module
        return [(path, child) for _, child in modules]
    return [(joined(path, name), child) for name, child in modules]


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether a module is the wrapper that `torch.compile(module)` puts around another
    one.
    """
    return type(module).__name__ == "OptimizedModule" and type(
        module
    ).__module__.startswith("torch.")


def unwrapped(module: Any) -> Any:
    """The module in a `DistributedDataParallel`, where nobody thinks of "module" as a
    part of the path; else the module.
    """
    while _wraps(type(module)):
        inside = dict(members(module, "_modules")).get("module")
        if inside is None:
            break
        module = inside
    return module


@once
def _wraps(kind: type) -> bool:
    return any(
        base.__name__ == _WRAPPER and base.__module__.startswith("torch.")
        for base in _mro(kind)
    )


@once
def members(module: torch.nn.Module, table: Table) -> list[tuple[str, Any]]:
    """The modules, parameters or buffers that a module itself registered. Reads its
    tables, calls nothing of its class.
    """
    import torch

    # has tables of torch's own kind
    if issubclass(type(module), torch.jit.ScriptModule):
        return [
            (name, value)
            for name, value in getattr(module, table).items()
            if value is not None
        ]
    held: Any = _own_dict(module).get(table)
    items = list(dict.items(held)) if issubclass(type(held), dict) else []
    return [
        (name, value)
        for name, value in items
        if type(name) is str and value is not None
    ]


def attribute_of(value: Any, path: Iterable[str]) -> Any:
    """What an object's attribute, and that of it, holds; None where there is none."""
    import torch

    for name in path:
        attributes = own_attributes(value)
        if is_a(value, torch.nn.Module):
            attributes |= members(value, "_buffers")
            attributes |= members(value, "_parameters")
            attributes |= members(value, "_modules")
        value = attributes.get(name)
    return value


def parameters(module: torch.nn.Module) -> list[torch.Tensor]:
    """The parameters of a module and of those inside it, each once."""
    by_identity = {
        id(parameter): parameter
        for _, inside in submodules(module)
        for _, parameter in members(inside, "_parameters")
    }
    return list(by_identity.values())


def joined(outer: str, inner: str) -> str:
    """A path below another; either may be empty."""
    return f"{outer}.{inner}" if outer and inner else outer or inner
