"""The lines of the user's code behind facts: where a graph is cut, a result is lost, a
part is made, and where a run failed.

Reads text, attributes, and frames of tracebacks, of which it keeps none. Runs nothing.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any

import torch

from gradviz.checks.context import Home
from gradviz.checks.record import Raised
from gradviz.checks.words import COMPARISONS, Names
from gradviz.errors import text_of as message_of
from gradviz.graph import SourceLine
from gradviz.packages import (
    Place,
    code_line,
    definition_of,
    is_foundation,
    package_of,
    with_text,
)
from gradviz.source.code_line import assigned as given, read
from gradviz.source.cut import Cut
from gradviz.source.search import lines_behind, returned_by
from gradviz.source.statements import (
    assigned,
    body_of,
    called,
    expressions_at,
    subject,
    text_of,
)
from gradviz.variables.objects import class_attribute, members, tensors_in
from gradviz.variables.scanner import Namespace, name_of, namespaces, scan
from gradviz.walker.isolation import isolated
from gradviz.walker.names import flatten
from gradviz.walker.private import Node
from gradviz.walker.walk import live_nodes

Models = Sequence[tuple[str, torch.nn.Module]]
"""The models of a run, by name."""


Variables = Sequence[Namespace]
"""The variables of the user's code, of the innermost function first."""


def users_frame(frame: FrameType | None) -> FrameType | None:
    """The nearest frame that runs code outside torch, gradviz and Python's own library:
    this one, or one around it.
    """
    while frame is not None and is_foundation(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def line_at(place: Place) -> SourceLine:
    """The script's own line of a place; the library's where no script was running."""
    return with_text(place.script_line or place.source)


# -- where a part of a class is made, used and kept ------------------------------------


def assignment_in(code: CodeType | None, attribute: str) -> SourceLine | None:
    """The line of a method that assigns an attribute of its first argument."""
    if code is None or not code.co_varnames:
        return None
    body, name = body_of(code), f"{code.co_varnames[0]}.{attribute}"
    return next(
        (body.source(node) for node, _ in body.statements if name in assigned(node)[0]),
        None,
    )


def made_at(kind: type, attribute: str) -> SourceLine | None:
    """The line of a class, or of a base of it, that assigns an attribute of `self`."""
    methods = (
        getattr(value, "__code__", None)
        for base in kind.__mro__
        for value in vars(base).values()
    )
    return next(
        filter(None, (assignment_in(code, attribute) for code in methods)), None
    )


def forward_of(kind: type) -> SourceLine | None:
    """The line where the forward() of a class begins, if that is the user's own."""
    code = getattr(class_attribute(kind, "forward"), "__code__", None)
    if code is None or package_of(code.co_filename):
        return None
    return definition_of(code)


def class_around(
    modules: Mapping[str, torch.nn.Module], path: str
) -> tuple[type, str] | None:
    """The nearest class of the user's around the parameter with this path, and the
    attribute of it that leads there.
    """
    while path:
        path, _, attribute = path.rpartition(".")
        for kind in type(modules[path]).__mro__:
            if not kind.__module__.startswith(("torch.", "builtins")):
                return kind, attribute
    return None


_FIRST = re.compile(r"(\w+)(.*)", re.DOTALL)


def home(names: Sequence[str], models: Models) -> Home | None:
    """Of a parameter with these names, which begin with the name of a model; None when
    no model's attribute holds it.

    >>> net = torch.nn.Linear(1, 1)
    >>> home(["net.extra[0].weight"], [("net", net)])
    Home(attribute='self.extra', container='torch.nn.ModuleList', line=None)
    """
    inside = (
        (name[len(prefix) + 1 :], model)
        for name in names
        for prefix, model in models
        if name.startswith(f"{prefix}.")
    )
    return next(
        filter(
            None,
            (_below(rest, model) for rest, model in inside),
        ),
        None,
    )


def _below(
    rest: str,
    module: torch.nn.Module,
) -> Home | None:
    while match := _FIRST.fullmatch(rest):
        attribute, tail = match.groups()
        child = dict(members(module, "_modules")).get(attribute)
        if child is None or not tail.startswith("."):
            return Home(
                f"self.{attribute}", _container(tail), made_at(type(module), attribute)
            )
        module, rest = child, tail[1:]
    return None


def _container(tail: str) -> str:
    """What registers the things in a list or dict, by how one of them is named:
    `[0].weight`, `['a']`; "" for an attribute.
    """
    match = re.match(r"\[(.*?)\](.*)", tail, re.DOTALL)
    if match is None:
        return ""
    kind = "Module" if match[2] else "Parameter"
    return f"torch.nn.{kind}{'List' if match[1].isdecimal() else 'Dict'}"


# -- what cuts a graph off -------------------------------------------------------------

_BUILT_IN = {"__float__": "float", "__int__": "int"}


def described(cut: Cut) -> Cut:
    """A cut with the expression that loses its graph, as the code spells it."""
    lost = (text_of(expression, 40) for expression in _lost(cut.source, cut.operation))
    by_name = cut.leaf and cut.kind != "deepcopy"
    return cut._replace(
        of=cut.leaf[0] if by_name else next(lost, ""),
        alive=True,
    )


def _lost(source: SourceLine, operation: str) -> Iterator[ast.expr]:
    """The expressions of a line that an operation was called on."""
    for node in expressions_at(source.file, source.line):
        if isinstance(node, ast.Compare) and operation in COMPARISONS:
            yield node.left
        elif operation == "written":
            if isinstance(
                getattr(node, "ctx", ast.Load()), ast.Load
            ) and not isinstance(node, ast.Attribute):
                yield (
                    node.args[0]
                    if isinstance(node, ast.Call)
                    and called(node) == "copy_"
                    and node.args
                    else node
                )
        elif isinstance(node, ast.Attribute) and node.attr == operation == "data":
            yield node.value
        elif isinstance(node, ast.Call) and called(node) == _BUILT_IN.get(
            operation, operation
        ):
            yield from subject(node)


# -- where a run failed ----------------------------------------------------------------

_CUSTOM = re.compile(r"[Ff]unction (\w+)Backward returned an")
_Stack = Sequence[tuple[FrameType, int]]


def raised(error: BaseException) -> Raised:
    """The facts about the exception that ended the user's code, while its traceback is
    there.
    """
    stack = list(walk_tb(error.__traceback__))
    own = [
        (frame, line)
        for frame, line in stack
        if not is_foundation(frame.f_code.co_filename)
    ]
    own = [
        (frame, line) for frame, line in own if not package_of(frame.f_code.co_filename)
    ] or own
    text = message_of(error)
    makes = [
        frame.f_locals.get("self")
        for frame, _ in stack
        if frame.f_code.co_name == "__init__"
    ]
    within = next(
        (
            f"{type(one).__name__}.__init__\n"
            for one in makes
            if isinstance(one, torch.nn.Module)
        ),
        "",
    )
    told = Raised(
        type(error).__name__,
        text,
        custom=_custom(text),
        within=within,
    )
    if not own:
        return told

    frame, line = own[-1]
    source = with_text(code_line(frame.f_code, line))
    told = told._replace(source=source)

    # tensors of the user's own classes may refuse anything
    with isolated(), suppress(Exception):
        variables = namespaces(frame)
        told = _called(told, stack, variables)
        if not (told.outputs or told.missing):
            told = told._replace(
                missing=_named(_refused(stack, variables, source), variables)
            )
            made = (
                earlier
                for earlier in lines_behind(source)
                if set(told.missing) & set(given(earlier))
            )
            told = told._replace(made=next(made, None))

    return told


def _refused(
    stack: _Stack, variables: Variables, source: SourceLine
) -> list[torch.Tensor]:
    """The tensor that `deepcopy` stopped at; or the float64 tensors that a line reads,
    which other dtypes do not go with.
    """
    inner = stack[-1][0]
    if inner.f_code.co_name == "__deepcopy__":
        return [
            owner
            for owner in (inner.f_locals.get("self"),)
            if isinstance(owner, torch.Tensor)
        ]

    values = (
        space.get(name) for space in variables for name in dict.fromkeys(read(source))
    )

    return [
        value
        for value in values
        if type(value) is torch.Tensor and value.dtype == torch.float64
    ]


def _called(told: Raised, stack: _Stack, variables: Variables) -> Raised:
    """The same with what backward began at, the inputs that it does not depend on, and
    the shape of the first output.
    """
    functions = (torch.autograd.backward.__code__, torch.autograd.grad.__code__)
    local = next(
        (frame.f_locals for frame, _ in stack if frame.f_code in functions), None
    )
    if local is None:
        return told

    outputs = tensors_in(local.get("tensors", local.get("outputs")))
    inputs = tensors_in(local.get("inputs"))
    reached = set(live_nodes(outputs)) if inputs else set()
    leaves = {id(leaf_of(node)) for node in reached}
    missing = [
        tensor
        for tensor in inputs
        if id(tensor) not in leaves
        and (tensor.grad_fn is None or tensor.grad_fn not in reached)
    ]
    shape = tuple(outputs[0].shape) if outputs else ()
    told = told._replace(
        backward=True,
        shape=shape,
        within=next(
            filter(None, (_parts(one, variables) for one in missing)),
            "",
        ),
    )

    return told._replace(
        outputs=_named(outputs, variables), missing=_named(missing, variables)
    )


def _parts(tensor: torch.Tensor, variables: Variables) -> str:
    """What a tensor is a part of, and all of whose parts have a name: "part of points:
    torch.cat([x, t], dim=1)".
    """
    base = tensor._base
    whole = _named([base], variables) if base is not None else ()
    if base is None or not whole:
        return ""

    known = [
        one
        for one in scan(variables)
        if type(one.value) is torch.Tensor and one.value._base is base
    ]
    parts = {id(one.value): one for one in known if one.value.shape != base.shape}
    ordered = sorted(
        parts.values(),
        key=lambda one: one.value.storage_offset(),
    )

    for dim in range(base.dim()):
        sizes = [
            one.value.shape[dim] for one in ordered if one.value.dim() == base.dim()
        ]
        if sum(sizes) == base.shape[dim] and len(sizes) == len(ordered):
            return f"part of {whole[0]}: torch.cat([{', '.join(one.name for one in ordered)}], dim={dim})\n"

    return f"part of {whole[0]}\n"


def nodes_behind(outputs: Sequence[Any]) -> list[Node]:
    """The nodes of the graph that a backward call runs through."""
    return live_nodes([output for _, output in flatten(list(outputs))])


def leaf_of(node: Node) -> object:
    """The leaf of an AccumulateGrad; None for other nodes."""
    if type(node).__name__ == "AccumulateGrad":
        return getattr(node, "variable", None)
    return None


def _named(tensors: Sequence[torch.Tensor], variables: Variables) -> Names:
    """What leads to these tensors: a variable, or else an object or a container in one."""
    inside = (
        name_of(tensor, variables)
        or next(
            (known.name for known in scan(variables) if known.value is tensor),
            "",
        )
        for tensor in tensors
    )
    return tuple(filter(None, inside))


def _custom(text: str) -> SourceLine | None:
    """The line of a custom Function that the engine's message is about: where its
    backward() returns, or its forward() begins.
    """
    match, without = (
        _CUSTOM.search(text),
        "You must implement either the backward" in text,
    )
    if match is not None or without:
        waiting: list[Any] = [torch.autograd.Function]
    else:
        waiting = []

    bare: list[SourceLine] = []
    while waiting:
        kind = waiting.pop()
        forward, backward = (
            getattr(
                getattr(vars(kind).get(name), "__func__", None),
                "__code__",
                None,
            )
            for name in ("forward", "backward")
        )
        if match is not None and kind.__name__ == match[1] and backward is not None:
            return returned_by(_begins(backward))
        inherited = (
            kind.backward is not torch.autograd.Function.backward
            or kind.vjp is not torch.autograd.Function.vjp
        )
        if (
            without
            and forward is not None
            and not inherited
            and not package_of(forward.co_filename)
        ):
            bare.append(_begins(forward))
        waiting += kind.__subclasses__()

    return bare[0] if len(bare) == 1 else None


def _begins(code: CodeType) -> SourceLine:
    """The line of `def`, behind the decorators."""
    known = body_of(code).statements
    return with_text(
        code_line(
            code,
            max(code.co_firstlineno, known[0].node.lineno - 1) if known else 0,
        )
    )
