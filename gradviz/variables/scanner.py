"""The one scanner of the user's variables: modules, tensors and optimizers, in
containers and objects too, with their names.

Breadth first from the variables, bounded in depth and number. Runs nothing of the
user's: asks `type(x)` and never `isinstance`, reads `__dict__` and slots past the
class, and so wakes no lazy proxy, no property and no `__getattr__`. Leaves nothing
behind. Knows nothing of what the names are for.
"""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodType,
    ModuleType as PythonModule,
)
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from gradviz.packages import frames_from, is_foundation, package_of, users_frame
from gradviz.variables.objects import (
    class_attribute,
    joined,
    once,
    own_attributes,
    own_class,
    submodules,
)

if TYPE_CHECKING:
    import torch

Namespace = Mapping[str, object]
Kind = Literal["tensor", "module", "optimizer", "container", "object", ""]
"""Functions are given to who asks for them. The last three are on the way only: nobody
is given one.
"""

_DEEPEST = 5  # steps from a variable: `trainer.agents[0].policy` is three
_MOST = 100_000  # values that are looked into or named
# entries of a container, with those of all containers and objects in it, above which
# only tensors, modules and optimizers among further ones are named: it holds data
_LONG = 1_000
_LONGEST = 10_000  # entries of a container that are read
# the level at which the object is entered whose method runs: shorter names for it are
# better
_SELF_COMES = 2
_LONGEST_KEY = 80
# others have a `repr` of unknown length and effect
_NAMING_KEYS = (str, int, float, bool, type(None))
ITSELF = ("self", "cls")
_NOBODYS = re.compile(r"__.*|_\d*|_i+\d*|In|Out")  # Python's own, and IPython's history
_OPTIMIZED = 0x1  # CO_OPTIMIZED: a function's frame, whose locals live in fast slots

_OPAQUE = (
    *(type, PythonModule, FunctionType, BuiltinFunctionType, MethodType),
    *(
        str,
        bytes,
        bytearray,
        int,
        float,
        complex,
        type(None),
        set,
        frozenset,
        range,
        slice,
    ),
)
_ITERATE: dict[type, Callable[[Any], Iterator[Any]]] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    deque: deque.__iter__,
}


class NamedValue(NamedTuple):
    """A tensor, module or optimizer that a variable leads to, and the name that leads
    there.

    `level` is 0 for a variable and one more for every step into a container or object.
    `space` is the number of the namespace. `private`: a part of the name begins with
    `_`.
    """

    name: str
    value: Any
    kind: Kind
    level: int
    space: int
    private: bool

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Smaller for the better of two names: a public one, a short one, one that does
        not end in a mere index.
        """
        index = self.name.endswith("]") and not self.name.endswith(("']", '"]'))
        return self.private, self.level + 2 * index, self.space


@once
def scan(
    namespaces: Sequence[Namespace], model: torch.nn.Module | None = None
) -> list[NamedValue]:
    """Everything that the variables lead to, shorter names first. Modules inside
    modules are not listed: see `submodules`.

    What several names lead to is listed several times, but a container or object is
    entered once. `model` comes first: by its variable, else without a name.

    >>> import torch
    >>> class Agent: pass
    >>> agent = Agent()
    >>> agent.policy, agent.seen = torch.nn.Linear(2, 1), [torch.ones(1)]
    >>> [(held.name, held.kind) for held in scan([{"agent": agent}])]
    [('agent.policy', 'module'), ('agent.seen[0]', 'tensor')]
    """
    return _Scanner().scan(namespaces, model)


class _Scanner:
    """One scan. Level by level, public names before private ones."""

    def __init__(self) -> None:
        import torch

        self._torch: tuple[tuple[type, Kind], ...] = (
            (torch.Tensor, "tensor"),
            (torch.nn.Module, "module"),
            (torch.optim.Optimizer, "optimizer"),
        )
        # by identity, since a metaclass may define `__hash__`
        self._known: dict[int, tuple[type, Kind]] = {}
        self._found: list[NamedValue] = []
        # keeps alive what was entered, so that an id means one thing
        self._entered: dict[int, Any] = {}
        self._levels: list[list[NamedValue]] = [[] for _ in range(_DEEPEST + 1)]
        # private names, until public ones lead no further
        self._later: list[NamedValue] | None = []
        self._left = _MOST
        # of what lies in a container: entries of the outermost one so far
        self._counters: dict[int, list[int]] = {}

    def scan(self, namespaces: Sequence[Namespace], model: Any) -> list[NamedValue]:
        if model is not None:
            self._wait(_name_of_model(model, namespaces), model, 0, 0, False)

        for space, namespace in enumerate(namespaces):
            for name, value in list(namespace.items()):
                if (
                    type(name) is str
                    and name.isidentifier()
                    and not _NOBODYS.fullmatch(name)
                ):
                    # any other name tells more than `self`
                    level = _SELF_COMES if name in ITSELF else 0
                    self._wait(name, value, level, space, name.startswith("_"))

        self._run()
        # now the private ones, from the level that each waited at
        later, self._later = self._later or [], None
        for value in later:
            self._levels[value.level].append(value)

        self._run()
        return self._found

    def _run(self) -> None:
        for level in self._levels:
            for value in level:
                if value.kind not in ("container", "object"):
                    self._found.append(value)
                if (
                    value.kind not in ("tensor", "optimizer")
                    and id(value.value) not in self._entered
                ):
                    # by the shortest name, since levels come in order
                    self._entered[id(value.value)] = value.value
                    self._enter(value)
            level.clear()

    def _wait(
        self, name: str, value: Any, level: int, space: int, private: bool
    ) -> None:
        kind = self._kind(type(value))
        if not kind or level > _DEEPEST or not self._left:
            return
        self._left -= 1
        if private and self._later is not None:
            into = self._later
        else:
            into = self._levels[level]
        into.append(NamedValue(name, value, kind, level, space, private))

    def _enter(self, holder: NamedValue) -> None:
        if holder.kind == "module":
            inside = [
                (joined(holder.name, path), module)
                for path, module in submodules(holder.value)
            ]
            self._entered.update((id(module), module) for _, module in inside)
            steps: Iterable[tuple[str, Any, bool]] = (
                (joined(path, part), value, False)
                for path, module in inside
                for part, value in self._attributes(module)
            )
        elif holder.kind == "object":
            steps = (
                (f"{holder.name}.{part}", value, part.startswith("_"))
                for part, value in own_attributes(holder.value).items()
                if not part.startswith("__")
            )
        else:
            steps = (
                (holder.name + step, value, False)
                for step, value in self._entries(holder.value)
            )

        counter = self._counters.get(
            id(holder.value), [0] if holder.kind == "container" else None
        )
        for name, value, private in list(steps):
            if counter is None or self._is_within_bounds(value, counter):
                self._wait(
                    name,
                    value,
                    holder.level + 1,
                    holder.space,
                    holder.private or private,
                )

    def _attributes(self, module: Any) -> Iterator[tuple[str, Any]]:
        """What a module holds beside its tables."""
        # torch's own keep sizes in tuples, of which a model has hundreds
        is_torchs = type(module).__module__.startswith("torch.nn.modules.")
        for name, value in own_attributes(module).items():
            kind = self._kind(type(value)) if name[:1] != "_" else ""
            if kind and not (is_torchs and type(value) is tuple):
                yield name, value

    def _is_within_bounds(self, value: Any, counter: list[int]) -> bool:
        """Whether to look into what lies in a container; `counter` has how much of that
        was looked into.
        """
        if self._kind(type(value)) not in ("container", "object"):
            return True
        counter[0] += 1
        if counter[0] > _LONG:
            return False
        self._counters[id(value)] = counter
        return True

    def _entries(self, value: Any) -> Iterator[tuple[str, Any]]:
        """The entries of a container that are worth a look, with the step to each as
        Python writes it.
        """
        kind = type(value)
        keys: Iterable[Any] = ()
        if issubclass(kind, dict):
            keys = list(islice(dict.keys(value), _LONGEST))
            items = list(islice(dict.values(value), _LONGEST))
        else:
            items = list(islice(_ITERATE[_base(kind)](value), _LONGEST))

        met = self._worth_a_look(items)
        if not met:
            # a list of a million numbers, or of as many pairs, is nothing unusual
            return
        if issubclass(kind, dict):
            steps = _keys(kind, keys)
        else:
            steps = _indices(kind, len(items))
        for step, item in zip(steps, items):
            if step and self._kind(type(item)) in met:
                yield step, item

    def _worth_a_look(self, items: Sequence[Any]) -> set[Kind]:
        """The kinds of entries that are named or entered."""
        # types, and not values: a list of a million numbers has one
        kinds = list(map(type, items))
        met = {self._kind(cls) for cls in dict(zip(map(id, kinds), kinds)).values()}
        met.discard("")
        # of a replay buffer only the tensors that lie in it directly
        return met - {"container", "object"} if len(items) > _LONG else met

    def _kind(self, type: type) -> Kind:
        """What to do with a value of this type: "" for nothing."""
        entry = self._known.get(id(type))
        if entry is None:
            entry = self._known[id(type)] = (type, self._find(type))
        return entry[1]

    def _find(self, type: type) -> Kind:
        for base, kind in self._torch:
            if issubclass(type, base):
                return kind
        if issubclass(type, _OPAQUE) or str(
            own_class(type).get("__module__")
        ).startswith("gradviz.graph."):
            # a graph of gradviz's that is kept in a variable has many records
            return ""
        return "container" if issubclass(type, (dict, *_ITERATE)) else "object"


def _keys(kind: type, keys: Iterable[Any]) -> Iterator[str]:
    """The step to each entry of a dict, "" for a key that no name is made of."""
    dotted = class_attribute(kind, "__dataclass_fields__") is not None  # a model output
    for key in keys:
        if type(key) not in _NAMING_KEYS or (
            type(key) is str and len(key) > _LONGEST_KEY
        ):
            yield ""
        else:
            yield f".{key}" if dotted and type(key) is str else f"[{key!r}]"


def _indices(kind: type, count: int) -> Iterator[str]:
    """The step to each entry of a list or tuple; of a named tuple its fields."""
    fields = class_attribute(kind, "_fields") if issubclass(kind, tuple) else None
    for i in range(count):
        yield f".{fields[i]}" if type(fields) is tuple and i < len(fields) else f"[{i}]"


def _base(kind: type) -> type:
    return next(base for base in _ITERATE if issubclass(kind, base))


# -- namespaces ------------------------------------------------------------------------


def name_of(value: object, namespaces: Sequence[Namespace]) -> str:
    """The variable that holds this very value, "" when none does."""
    named = (
        name
        for space in namespaces
        for name, item in space.items()
        # pytest's own begin with @; a target that is no variable is `y.grad_fn`
        if item is value and not name.startswith(("_", "@"))
    )
    return next(named, "")


def _name_of_model(model: object, namespaces: Sequence[Namespace]) -> str:
    name = name_of(model, namespaces)
    return "" if name in ITSELF else name


def value_of(name: str, namespaces: Sequence[Namespace], absent: object = None) -> Any:
    """What the innermost variable of this name holds."""
    return next((space[name] for space in namespaces if name in space), absent)


def as_written(name: str, namespaces: Sequence[Namespace]) -> str:
    """The same name as the innermost code writes it: `self.total` in a method of what
    is `trainer.total` outside.
    """
    first, dot, rest = name.partition(".")
    value = value_of(first, namespaces)
    local_name = name_of(value, namespaces[:1]) if dot and value is not None else ""
    return f"{local_name}.{rest}" if local_name else name


def namespaces(frame: FrameType | None) -> list[dict[str, object]]:
    """Copies of the local and global variables of a frame, inner first. Leaves nothing
    behind in the frame.
    """
    if frame is None:
        return []
    local = local_variables(frame)
    if not frame.f_code.co_flags & _OPTIMIZED and frame.f_locals is frame.f_globals:
        # the top level of a file: both are the same dict
        return [local]
    return [local, dict(frame.f_globals)]


def first_argument(frame: FrameType) -> Any:
    """What the first argument of a running function is now, `self` in a method. Leaves
    nothing behind in the frame.
    """
    return local_variables(frame).get(frame.f_code.co_varnames[0])


def local_variables(frame: FrameType) -> dict[str, object]:
    """A copy of the local variables.

    Up to Python 3.12 reading `f_locals` of a running function fills a dict that the
    frame keeps until it ends, so a later `del y` of the user's would free nothing. It
    is emptied again, unless the user holds it from a `locals()` call.
    """
    live = frame.f_locals  # read once: reading it again would fill it again
    local = dict(live)
    if (
        sys.version_info < (3, 13)
        and frame.f_code.co_flags & _OPTIMIZED
        and sys.getrefcount(live) <= 3
    ):
        live.clear()
    return local


_CALLERS = 30  # functions around the one that asks


def variables_at(
    frame: FrameType | None, main: Namespace, outermost: CodeType
) -> list[Namespace]:
    """Local variables of the user's frames from the backward call outwards, their
    modules' globals, `main`, then models.

    The models are local variables of an installed library's functions, such as a
    trainer's: they may have no other name. Frames of torch, gradviz and Python are left
    out, and so is everything from the frame of `outermost` on.
    """
    local: list[Namespace] = []
    outer: dict[int, Namespace] = {}
    models: list[Namespace] = []

    for caller in frames_from(frame, outermost):
        file = caller.f_code.co_filename
        if is_foundation(file):
            continue
        inner, *rest = namespaces(caller)
        if package_of(file):
            # a library's own tensors would only be noise
            models.append(_models(inner) if rest else {})
            continue
        if caller.f_globals is not main:
            outer.setdefault(id(caller.f_globals), rest[0] if rest else inner)
        if rest:
            # without rest these are globals, which come below
            local.append(inner)

    return [*local, *outer.values(), main, *filter(None, models)]


def callers_variables(frame: FrameType) -> list[Namespace]:
    """Variables of the user's function that asks, then those of his functions around
    it, each with its module's globals.

    A helper such as `report(loss)` is told the names that its caller has. Installed
    libraries in between are left out, such as a test runner or a trainer.
    """
    frame = users_frame(frame) or frame
    variables: list[Namespace] = list(namespaces(frame))
    seen_globals = {id(frame.f_globals)}

    for outer in islice(frames_from(frame.f_back), _CALLERS):
        file = outer.f_code.co_filename
        if not package_of(file) and not is_foundation(file):
            inner, *rest = namespaces(outer)
            if rest:
                variables.append(inner)
            if id(outer.f_globals) not in seen_globals:
                seen_globals.add(id(outer.f_globals))
                variables.append(rest[0] if rest else inner)

    return variables


def _models(variables: Namespace) -> Namespace:
    import torch

    return {
        name: value
        for name, value in variables.items()
        if issubclass(type(value), torch.nn.Module)
    }
