"""What does something else than it looks like: attributes that freeze nothing, hooks
that pile up or let nothing through, forward() called past hooks or past apply(), weights
that are tied no more, copies of a network to itself.

Each generator looks at one such thing, and `note_misuse` puts what all yield into the
log of the run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from types import CodeType, FunctionType, MethodType

import torch

from gradviz.checks.collect.copies import (
    averaged,
    averaged_with_itself,
    files_of,
    sharing,
    untied_by_modules,
    untied_or_copied,
)
from gradviz.checks.collect.models import Reading
from gradviz.checks.collect.numbers import repeated
from gradviz.checks.collect.one_module import made_once
from gradviz.checks.collect.recorder import Note, Recorder
from gradviz.checks.collect.squares import squared
from gradviz.checks.run import Kind
from gradviz.checks.words import made_at
from gradviz.graph import SourceLine
from gradviz.packages import definition_of, package_of
from gradviz.source.search import freezes, matching
from gradviz.source.statements import (
    assigned,
    bodies,
    body_of,
    covers,
    flattened,
    pieces_in_place,
    reads,
    statements_at,
    written_at,
)
from gradviz.source.syntax import LOOPS
from gradviz.variables.objects import (
    attribute_of,
    class_attribute,
    is_a,
    joined,
    own_attributes,
    parameters,
    submodules,
)
from gradviz.variables.scanner import value_of


def note_misuse(recorder: Recorder, reading: Reading) -> None:
    """Note all of it that one call shows."""
    spaces = reading.live.variables
    written = files_of(spaces)
    trained = set[int]().union(*(row.given for row in recorder.run.optimizers))
    notes = [
        averaged(reading.models, spaces, trained) if trained else (),
        sharing(reading.models, spaces, trained) if trained else (),
        averaged_with_itself(reading.models, spaces, trained) if trained else (),
        _hooked(reading, recorder.hooks),
        _switched_off(reading, written),
        untied_by_modules(reading.models),
        _overwritten(reading),
        _unfrozen(reading, written),
        squared(reading),
        made_once(reading.models, spaces),
        _never_asked(reading, written),
    ]
    for file in written:
        notes += untied_or_copied(file, spaces), _called_past(reading, file)
    for note in chain.from_iterable(notes):
        recorder.note(*note)


def _modules(reading: Reading) -> Iterator[tuple[str, str, torch.nn.Module]]:
    """Every module, after the name of its model and its path in that."""
    for name, model in reading.models:
        for path, module in submodules(model):
            yield name, path, module


def _switched_off(reading: Reading, files: Iterable[str]) -> Iterator[Note]:
    """Modules that somebody wants to freeze by an attribute which torch does not read."""
    off = [
        joined(name, path)
        for name, path, module in _modules(reading)
        if own_attributes(module).get("requires_grad") is False
        and any(tensor.requires_grad for tensor in parameters(module))
    ]
    if off:
        source = next(filter(None, map(freezes, files)), None)
        yield Kind.NO_SWITCH, source, *off


def _unfrozen(reading: Reading, files: Iterable[str]) -> Iterator[Note]:
    """Lines that are to train a module again, and set an attribute of it."""
    for file in files:
        for source, match in matching(file, r"^([\w.]+)\.requires_grad = True$"):
            first, *rest = match[1].split(".")
            held = attribute_of(value_of(first, reading.live.variables), rest)
            inside = parameters(held) if is_a(held, torch.nn.Module) else []
            if inside and not any(tensor.requires_grad for tensor in inside):
                yield (
                    Kind.NO_EFFECT,
                    source,
                    match[0],
                    "sets an attribute of the module, which torch does not read: its parameters stay frozen",
                    f"use {match[1]}.requires_grad_(True)",
                )


# -- elements that are written several times ---------------------------------------------


def _overwritten(reading: Reading) -> Iterator[Note]:
    """Where a line adds to elements by indices of which one comes several times: all but
    one of what is added to it get lost.
    """
    graph = reading.walked.graph
    for node in sorted(repeated(reading.walked.nodes)):
        source = made_at(graph, node)
        for statement in statements_at(source):
            if instead := _accumulated(statement):
                yield Kind.OVERWRITTEN, source, ast.unparse(statement), instead


def _accumulated(statement: ast.stmt) -> str:
    """What adds to elements of a tensor each time that an index comes, in place of a
    line that does so once; "" of another line.

    >>> def written(code):
    ...     return _accumulated(ast.parse(code).body[0])
    >>> written("out[i] += x + y")
    'out.index_put_((i,), x + y, accumulate=True)'
    >>> written("self.out[i, j] = self.out[i, j] - x")
    'self.out.index_put_((i, j), -x, accumulate=True)'
    >>> written("out[:, i] += x")
    'out.index_add_(1, i, x)'
    >>> written("out[i] = x"), written("out[i, 1:] += x")
    ('', '')
    """
    target, added = (
        getattr(statement, "target", None),
        getattr(statement, "value", None),
    )
    op = getattr(statement, "op", None)
    if isinstance(statement, ast.Assign) and isinstance(added, ast.BinOp):
        target, op = statement.targets[0], added.op
        if ast.unparse(added.left) != ast.unparse(target):
            return ""
        added = added.right
    if not isinstance(target, ast.Subscript) or added is None:
        return ""
    if isinstance(op, ast.Sub):
        added = ast.UnaryOp(ast.USub(), added)
    elif not isinstance(op, ast.Add):
        return ""

    holder, value = ast.unparse(target.value), ast.unparse(added)
    is_several = isinstance(target.slice, ast.Tuple)
    places = target.slice.elts if is_several else [target.slice]  # type: ignore[attr-defined]
    indices = [ast.unparse(place) for place in places]
    if set(indices[:-1]) == {":"}:
        return f"{holder}.index_add_({len(indices) - 1}, {indices[-1]}, {value})"
    if any(isinstance(place, ast.Slice) for place in places):
        return ""
    given = ", ".join(indices) + ("," if len(indices) == 1 else "")
    return f"{holder}.index_put_(({given}), {value}, accumulate=True)"


# -- forward() called by the code ------------------------------------------------------

_HOOKS = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks"
_FUNCTION = torch.autograd.Function


def _called_past(reading: Reading, file: str) -> Iterator[Note]:
    """Where forward() of a module with hooks, or of a custom Function, is called in
    place of the module or of apply().
    """
    calls = list(matching(file, r"([\w.]+)\.forward(?:\(| for \1 in ([\w.]+))"))
    passed: dict[str, str] = {}
    for name, path, module in _modules(reading) if calls else ():
        if _is_passed(reading, module):
            whole = joined(name, path)
            passed[whole.rpartition(".")[2]] = whole

    for source, match in calls:
        holder, last = match[1], match[1].rpartition(".")[2]
        value = value_of(holder, reading.live.variables)
        # handed on, it is called under another name
        through = (match[2] or "").rpartition(".")[2]
        inside = [name for name in passed.values() if through in name.split(".")]
        if last in passed or (through and inside):
            yield Kind.NO_HOOK, source, passed.get(last) or inside[0]
        is_custom = isinstance(value, type) and issubclass(value, _FUNCTION)
        named = f"{getattr(value, '__name__', '')}Backward"
        if is_custom and named not in reading.walked.graph.ops:
            yield Kind.NO_APPLY, source, holder


def _never_asked(reading: Reading, files: Iterable[str]) -> Iterator[Note]:
    """Where a module that ran has a backward() of its own, which takes a gradient and
    returns one, and no line gives it one.
    """
    recording = reading.live.recording
    if recording is None:
        return
    for _, _, module in _modules(reading):
        backward = class_attribute(type(module), "backward")
        if type(backward) is not FunctionType or not recording.run_of(module).calls:
            continue
        code, body = backward.__code__, body_of(backward.__code__)
        returned = [s.value for s in body.statements if isinstance(s, ast.Return)]
        takes_one = code.co_argcount in (2, 3)  # perhaps behind ctx
        if package_of(code.co_filename) or not takes_one or not any(returned):
            continue
        given = r"\bbackward\((?!\)|\w+=)"
        if not any(any(matching(file, given)) for file in {code.co_filename, *files}):
            source = body.line(code.co_firstlineno)
            yield Kind.NO_FUNCTION, source, type(module).__name__


def _is_passed(reading: Reading, module: torch.nn.Module) -> bool:
    """Whether a module with hooks takes part in the graph and was not called, as far as
    that is known.
    """
    held, recording = own_attributes(module), reading.live.recording
    return (
        any(map(held.get, _HOOKS))
        and any(id(tensor) in reading.leaf_of for tensor in parameters(module))
        and recording is not None
        and not recording.run_of(module).calls
    )


# -- hooks of tensors ------------------------------------------------------------------

HOOKS = 3
"""Hooks of one line on one tensor, from which a loop adds one in each turn."""
_CLAMPED = (
    r"(?:torch\.cl(?:am|i)p\(NAME, |NAME\.cl(?:am|i)p_?\()"
    r"(?:min=)?0(?:\.0*)?, (?:max=)?[\d.]+\)"
)


def _hooked(reading: Reading, seen: dict[tuple[str, CodeType], int]) -> Iterator[Note]:
    """Hooks that are there several times, more often than when they were first `seen`;
    those that let no negative gradient through, and those that share a variable which a
    loop changes.
    """
    hooks = list(_hooks(reading))
    by_code: dict[CodeType, list[FunctionType]] = {}
    for _, function in hooks:
        by_code.setdefault(function.__code__, []).append(function)
    for code, functions in by_code.items():
        for shared in _shared(code, functions):
            yield Kind.LATE, definition_of(code), shared, str(len(functions))
    for (name, hook), times in Counter((n, f.__code__) for n, f in hooks).items():
        first = seen.setdefault((name, hook), times)
        # a constructor may register several
        if times >= HOOKS and times > first:
            yield Kind.HOOKED, definition_of(hook), name, str(times)
        source = _without_sign(hook)
        if source is not None:
            yield Kind.NO_NEGATIVE, source, name
        copied = _dropped(by_code[hook][0])
        if copied:
            yield (
                Kind.NO_EFFECT,
                definition_of(hook),
                f"the hook {hook.co_name}() of {name}",
                "changes a copy of the gradient, and returns nothing: autograd goes on with the gradient as it was",
                f"return {copied} at the end",
            )


def _hooks(reading: Reading) -> Iterator[tuple[str, FunctionType]]:
    """The Python functions that change gradients of named tensors, with the name."""
    for tensor, names in reading.walked.names.named():
        for hook in (tensor._backward_hooks or {}).values():
            # without asking an object of the user's own for it
            function = hook.__func__ if type(hook) is MethodType else hook
            if isinstance(function, FunctionType):
                yield names[0], function


def _dropped(hook: FunctionType) -> str:
    """What a hook makes of the gradient, changes, and reads no more, where it returns
    nothing; "" of another one.
    """
    code = hook.__code__
    body, copies, changed = body_of(code), set[str](), ""
    if any(isinstance(each, ast.Return) and each.value for each in body.statements):
        return ""
    # behind `self`, and before what has a default
    given = code.co_varnames[: code.co_argcount - len(hook.__defaults__ or ())]
    for statement in body.statements:
        pieces = list(pieces_in_place(statement))
        names, value = assigned(statement)
        if changed in reads(statement) and not pieces:
            changed = ""
        if isinstance(statement, ast.Assign) and value is not None:
            copies.update(names if given[-1:] and given[-1] in reads(value) else ())
        for piece in pieces:
            changed = piece.name if piece.name in copies else changed
    return changed


def _shared(code: CodeType, hooks: Sequence[FunctionType]) -> Iterator[str]:
    """The variables that these hooks of one line share, and to which the loop around it
    gives another value in each turn.
    """
    if len(hooks) < 2:
        return
    cells = [
        set(zip(code.co_freevars, map(id, hook.__closure__ or ()))) for hook in hooks
    ]
    shared = {name for name, _ in set.intersection(*cells)}
    source = definition_of(code)
    for body in bodies(source.file):
        loops = [each for each in body.statements if isinstance(each, LOOPS)]
        around = [loop for loop in loops if covers(loop, source.line)]
        # what is looked up in the module is shared by all
        is_module = body.function == "<module>"
        late = shared.union(code.co_names) if is_module else shared
        for statement in flattened(around[-1:]):
            names, value = assigned(statement)
            if not isinstance(value, ast.Constant):
                yield from late.intersection(names)


def _without_sign(code: CodeType) -> SourceLine | None:
    """The line of a hook that returns the gradient itself, clamped to numbers from 0
    on, and nothing else.
    """
    clamped = _CLAMPED.replace("NAME", "".join(code.co_varnames[:1]))
    source = definition_of(code)
    if code.co_name == "<lambda>":
        is_all = re.search(rf"lambda \w+: {clamped}(?=[),]|$)", written_at(source))
        return source if is_all else None
    body, made = body_of(code), dict[str, str]()
    for statement in body.statements:
        names, value = assigned(statement)
        made |= dict.fromkeys(names, ast.unparse(value) if value is not None else "")
    returns = [
        s.value for s in body.statements if isinstance(s, ast.Return) and s.value
    ]
    texts = map(ast.unparse, returns)
    if not returns or not all(re.fullmatch(clamped, made.get(t, t)) for t in texts):
        return None
    return next((line for line, _ in matching(body.file, clamped, body)), source)
