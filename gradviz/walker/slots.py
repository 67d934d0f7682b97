"""What live nodes tell without their tensors: their types, attributes such as `dim`,
the slots and in which state each is.

No hook runs: only its name and its closure are looked at, as those of a checkpoint's
function are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dis import get_instructions
from functools import lru_cache, partial
from inspect import unwrap
from operator import attrgetter
from types import CodeType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch

from gradviz.graph import NO_ATTRIBUTES, Function, NodeFlag, Packing, SavedState
from gradviz.packages import code_line
from gradviz.variables.objects import is_a, own_attributes
from gradviz.walker import private
from gradviz.walker.private import Node

# -- the type of a node ----------------------------------------------------------------


def nodes_of(
    nodes: Sequence[Node], is_meant: Callable[[type], bool]
) -> dict[int, Node]:
    """The nodes of some types, by number."""
    kinds = {kind for kind in set(map(type, nodes)) if is_meant(kind)}
    if kinds:
        return {i: node for i, node in enumerate(nodes) if type(node) in kinds}
    return {}


class NodeType(NamedTuple):
    """What all nodes of one type share."""

    op: str
    flags: tuple[NodeFlag, ...]
    function: Function | None


_HIDES: dict[str, NodeFlag] = {
    "CheckpointFunctionBackward": "checkpoint",
    "CompiledFunctionBackward": "compiled",
}
_OPAQUE = ("CopySlices", "CppFunction")
_Function = torch.autograd.Function


def node_type(type: type) -> NodeType:
    """Name, flags and class of a type of node. The op is "" where the type does not say
    it and each node must be asked.
    """
    op = type.__name__
    flags: list[NodeFlag] = []
    function = None
    if issubclass(type, private.BackwardCFunction):
        flags.append("custom")
        function = _function(type)
    if op in _HIDES:
        flags.append(_HIDES[op])
    elif op in _OPAQUE:
        flags.append("hidden")
    return NodeType("" if op == "CppFunction" else op, tuple(flags), function)


def _function(type: Any) -> Function:
    """The class of a custom Function's node, and where its `backward` is defined when
    Python can tell.
    """
    cls = getattr(type, "_forward_cls", None) or type
    if getattr(cls, "vjp", None) is not _Function.vjp:
        method = cls.vjp
    else:
        method = getattr(cls, "backward", None)
    backward = unwrap(method or cls)
    code = getattr(backward, "__code__", None)
    definition = code_line(code, code.co_firstlineno) if code is not None else None
    return Function(f"{cls.__module__}.{cls.__qualname__}", definition)


# -- attributes ------------------------------------------------------------------------

RAW, SAVED = "_raw_saved_", "_saved_"
Fetch = Callable[[Node], Any]


class SlotLayout(NamedTuple):
    """How to read the nodes of one type."""

    slots: tuple[tuple[str, Fetch], ...]  # each tensor slot, and what fetches it
    plain: tuple[str, ...]  # names of the attributes that are no tensors
    values: Fetch  # fetches all of those at once
    custom: bool


def layout(node: Node) -> SlotLayout:
    """How to read the nodes of one type."""
    # once for each type: it is slow, and the same for all of its nodes
    members = dir(node)
    custom = isinstance(node, private.BackwardCFunction)
    if custom:
        # a custom Function has one list of all that it saved
        tensors = ["tensors"]
    else:
        tensors = [name.removeprefix(RAW) for name in members if name.startswith(RAW)]

    saved = [name.removeprefix(SAVED) for name in members if name.startswith(SAVED)]
    plain = tuple([name for name in saved if name not in tensors])
    slots = [
        ("saved_tensors" if custom else name, attrgetter(RAW + name))
        for name in tensors
        if private.HAS_RAW_DATA
    ]
    return SlotLayout(tuple(slots), plain, _fetch_all(plain), custom)


def layouts(nodes: Sequence[Node]) -> dict[type, SlotLayout]:
    """How to read the types of these nodes."""
    examples = {type(node): node for node in nodes}
    return {type: layout(node) for type, node in examples.items()}


def _fetch_all(plain: tuple[str, ...]) -> Fetch:
    if not plain:
        return lambda node: ()
    fetch = attrgetter(*[SAVED + name for name in plain])
    return fetch if len(plain) > 1 else lambda node: (fetch(node),)


_SIGNED_FROM = 2**63


class Attributes:
    """Reads the attributes of the nodes of one walk; equal ones are one object."""

    def __init__(self) -> None:
        self._known: dict[Any, Mapping[str, Any]] = {}

    def read(
        self, node: Node, layout: SlotLayout, extra: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """The plain attributes of a node, and what else is one of it."""
        plain = layout.plain
        if not plain and not extra:
            return NO_ATTRIBUTES
        try:
            values = layout.values(node)
        except RuntimeError:  # one cannot be read: ask one by one
            values = tuple([_one(node, name) for name in plain])

        everything = (*values, *extra.values())
        # types, because 1 == 1.0 == True
        key = (plain, *extra, everything, *map(type, everything))
        try:
            attributes = self._known.get(key)
        except TypeError:  # a list or a symbolic size, which have no hash
            return _mapping(plain, values, extra)
        if attributes is None:
            attributes = self._known[key] = _mapping(plain, values, extra)
        return attributes


def _mapping(
    plain: tuple[str, ...], values: tuple[Any, ...], extra: Mapping[str, Any]
) -> Mapping[str, Any]:
    by_name = dict(zip(plain, map(_decoded, values))) | dict(extra)
    return {name: by_name[name] for name in sorted(by_name)}


def _one(node: Node, name: str) -> Any:
    try:
        return getattr(node, SAVED + name)
    except RuntimeError as error:
        return f"unreadable: {str(error).splitlines()[0]}"


def _decoded(value: Any) -> Any:
    """A non-tensor attribute as plain data. An int64 that torch hands out as unsigned
    is made negative again.
    """
    kind = type(value)
    if kind is int:
        # torch hands out a negative int64, such as dim=-1, as unsigned
        return value - 2**64 if value >= _SIGNED_FROM else value
    if value is None or kind in (bool, float, str):
        return value
    if isinstance(value, (tuple, list)):
        return tuple(_decoded(item) for item in value)
    return str(value)


# -- the state of a slot ---------------------------------------------------------------


def is_freed(node: Node, slot: str) -> bool:
    """Whether an empty slot without a hook is empty because backward freed it. No hook
    can run: there is none.
    """
    try:
        getattr(node, SAVED + slot)
    except RuntimeError:
        return True
    return False


_VERSIONS = re.compile(r"is at version (\d+); expected version (\d+)")


def state(raw: Any, node: Node | None, slot: str) -> tuple[SavedState, str]:
    """Whether torch says that an unhooked slot of `node` was modified since it was
    saved, and what else it says.

    Of an element of a list, which has no node, `raw` is asked. Torch refuses to answer
    for an output of the node itself: unknown.
    """
    try:
        # no hook can run here: the slot has none
        raw.unpack() if node is None else getattr(node, SAVED + slot)
    except (RuntimeError, AttributeError) as error:
        versions = _VERSIONS.search(str(error))
        # the words of the error are the only place where torch tells the versions
        if "inplace" in str(error):
            note = ""
            if versions:
                note = f"saved at version {versions[2]}, now at version {versions[1]}"
            return "modified", note
        return (
            "unknown",
            "modified in place at some time; torch does not tell whether since it was saved",
        )

    return "live", ""


def tensors_on(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an attribute of `ctx`, at most one list, tuple or dict deep, with
    the names of their slots.
    """
    items: Any = ((name, value),)
    if is_a(value, list) or is_a(value, tuple):
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value))
    # values of a mapping of the user's own class would run its code
    elif type(value) is dict:
        items = ((f"{name}[{i}]", item) for i, item in enumerate(value.values()))
    return ((slot, item) for slot, item in items if is_a(item, torch.Tensor))


# -- what hooks packed -----------------------------------------------------------------

_FRAME = "_CheckpointFrame"
_MODULE = "torch.utils.checkpoint"
_OFFLOAD_MODULE = "torch.autograd.graph"


def packing_note(packed: Any, hook: Any) -> str:
    """Which hook unpacks a slot, and from what, in words."""
    name = f"{getattr(hook, '__module__', '')}.{getattr(hook, '__qualname__', type(hook).__qualname__)}".lstrip(
        "."
    )
    kind = f"{type(packed).__module__}.{type(packed).__qualname__}".removeprefix(
        "builtins."
    )
    return f"unpacked by {name} from a {kind}"


def packed_tensor(packed: Any) -> torch.Tensor | None:
    """The only tensor among what was packed, as `save_on_cpu` has it: (device, tensor).
    None where there is not just one.
    """
    items = packed if type(packed) in (tuple, list) else (packed,)
    tensors = [item for item in items if is_a(item, torch.Tensor)]
    return tensors[0] if len(tensors) == 1 else None


def packing(hook: Any) -> Packing:
    """Which of torch's own hooks this is, by where it is defined."""
    module = getattr(hook, "__module__", None)
    if module == _MODULE:
        return "recompute"
    name = getattr(hook, "__qualname__", "")
    if module == _OFFLOAD_MODULE and name.startswith("save_on_cpu."):
        return "offload"
    return "hook"


# What a non-reentrant checkpoint keeps so that it can compute again: the inputs of the
# wrapped function. They lie in no slot of any node, but in the checkpoint's own frame,
# which its unpack hook knows. The frame is only looked at: no hook runs and nothing is
# computed. Where torch changes the names used here, nothing is found.


def checkpoint_behind(hook: Any) -> Any:
    """The frame of the checkpoint behind an unpack hook, which all its slots share;
    None for a hook of another kind.
    """
    if getattr(hook, "__module__", None) != _MODULE:
        return None
    return next(
        (value for value in _captured(hook) if type(value).__name__ == _FRAME), None
    )


def _captured(function: Any) -> Iterator[Any]:
    """Values in the closure of a function, and in those of the functions there."""
    for value in cells(function):
        yield value
        if type(value) is FunctionType and value.__module__ == _MODULE:
            yield from cells(value)


def cells(function: Any) -> Iterator[Any]:
    """What a function closes over, as far as it is filled."""
    for cell in getattr(function, "__closure__", None) or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def kept_by(frame: Any) -> Iterator[torch.Tensor]:
    """The saved inputs: in the frame itself, or in earlier versions of torch as what a
    helper node saved.
    """
    inputs: Any = getattr(frame, "saved_args", None)
    if inputs is None:
        try:
            inputs = getattr(
                getattr(frame, "input_saver", None), "_raw_saved_tensors", ()
            )
        except RuntimeError:  # freed
            inputs = ()

    for saved in inputs:
        raw = type(saved) is torch._C._autograd.SavedTensor
        if raw and getattr(saved, "unpack_hook", None) is not None:
            continue
        tensor = getattr(saved, "data", None) if raw else saved
        if is_a(tensor, torch.Tensor):
            yield tensor


_MOST = 20  # functions and cells that are looked at


def modules_behind(node: Any) -> list[torch.nn.Module]:
    """The modules that the function of a checkpoint's node is, is bound to, or only
    calls, as far as it closes over them or names them.

    Which module a reentrant checkpoint ran: its ops are hidden behind one node, whose
    function knows it. Reads the function that torch keeps, past its class, and calls
    nothing.

    >>> from torch.utils.checkpoint import checkpoint
    >>> x, block = torch.ones(1, requires_grad=True), torch.nn.Linear(1, 1)
    >>> y = checkpoint(lambda h: block(h), x, use_reentrant=True)
    >>> modules_behind(y.grad_fn) == [block]
    True
    """
    modules: list[torch.nn.Module] = []
    waiting: list[Any] = [own_attributes(node).get("run_function")]

    for value in waiting:
        kind = type(value)
        if len(waiting) > _MOST:
            break
        if issubclass(kind, torch.nn.Module):
            modules.append(value)
        elif kind is MethodType and (
            value.__name__ in _OWN_CALL or _only_calls(value.__func__.__code__)
        ):
            waiting.append(value.__self__)
        elif kind is partial:
            waiting.append(value.func)
        elif kind is FunctionType and _only_calls(value.__code__):
            waiting += cells(value)
            waiting += value.__defaults__ or ()
            named = [value.__globals__.get(name) for name in value.__code__.co_names]
            waiting += [
                value for value in named if issubclass(type(value), torch.nn.Module)
            ]

    return modules


@lru_cache(maxsize=1024)
def _only_calls(code: CodeType) -> bool:
    """Whether a function calls one thing, and computes nothing beside it."""
    calls = 0
    for instruction in get_instructions(code):
        name, text = instruction.opname, instruction.argrepr
        calls += name in _CALLS
        # an attribute of what it knows is called
        is_method = name == "LOAD_METHOD" or (name == "LOAD_ATTR" and "NULL" in text)
        if is_method or name.startswith(_COMPUTES):
            return False
    return calls == 1


_OWN_CALL = ("forward", "_wrapped_call_impl")
# those of functions are of Python 3.10
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX", "CALL_FUNCTION", "CALL_FUNCTION_KW")
_COMPUTES = ("BINARY_", "INPLACE_", "UNARY_")
