"""Networks that are copied to themselves, since two names hold one network, or a kept
state_dict() holds the parameters themselves; and weights that are tied no more.

Compares identities and storages, and reads no number.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, OrderedDict
from collections.abc import Iterator
from itertools import chain, islice, product
from types import FrameType
from typing import Any

import torch

from gradviz.armour.isolation import isolated
from gradviz.checks.collect.behind import Models, Variables
from gradviz.checks.collect.recorder import Note, Recorder
from gradviz.checks.run import Kind
from gradviz.cuts.leaves import MOST
from gradviz.graph import SourceLine
from gradviz.packages import is_foundation
from gradviz.source.search import matching
from gradviz.source.statements import (
    Body,
    assigned,
    blocks_around,
    bodies,
    body_of,
    called,
    covers,
    flattened,
    loops_around,
    text_of,
    written_at,
)
from gradviz.variables.objects import (
    attribute_of,
    is_a,
    own_attributes,
    parameters,
    submodules,
)
from gradviz.variables.scanner import value_of
from gradviz.walker.names import registered
from gradviz.walker.tensors import is_plain, storage_of

_LOOP = r"^for .* in zip\(([\w.]+)\.(?:named_)?parameters\(\), ([\w.]+)\.(?:named_)?parameters\(\)\)"
_CHANGES = re.compile(r"\.(copy_|mul_|add_|lerp_|data\b)")
_AVERAGED = (
    r"^{0}\.(data\.)?(mul_\(.+\)\.add_|lerp_)\(|"
    r"^{0}\.(data\.)?copy_\(.*\b{0}(\.data)? .*\+"
)
_AVERAGE = rf"^{{0}}(\.data)? = (.* \* )?{{0}}(\.data)? .*\+ |{_AVERAGED}"
_TIE = r"^([\w.]+\.weight) = ([\w.]+\.weight)$"
_KEPT = r"(?:^[^(]* = [^(]*?|\bappend\()\b([\w.]+)\.state_dict\(\)(?!\.items)"
_NAMED = r"^(?:\w+\.)*{0} = (?!.*(?:clone|copy)).*?\b([\w.]+)\.state_dict\(\)"
_LOAD = re.compile(
    r"([\w.]+)\.load_state_dict\((?:([\w.]+)\.state_dict\(\)|([\w.]+)[,)])?"
)


def loaded(recorder: Recorder, frame: FrameType, module: Any, state: Any) -> None:
    """A line loads a state after steps were taken: whether it is what the module holds."""
    if not recorder.run.stepped or not isinstance(state, dict):
        return
    with isolated(), recorder.reading("loaded states"):
        own = [t for t in registered("", module) if t[2] == "parameter"]
        if not own or not all(_is_same(state.get(path), held) for path, held, _ in own):
            return
        source = recorder.line(frame)
        match = _LOAD.search(written_at(source))
        if source is None or match is None:
            return
        if match[2]:
            recorder.note(*_copied(source, match[1], match[2]))
            return
        # what is loaded at once may be its own
        patterns = [_NAMED.format(match[3].rpartition(".")[2])] if match[3] else []
        found = (matching(source.file, each) for each in (*patterns, _KEPT))
        for kept, made in islice(chain.from_iterable(found), 1):
            recorder.note(
                Kind.NO_EFFECT,
                kept,
                f"{match[1]}.load_state_dict({match[3] or '...'})",
                "keeps the parameters themselves, which each step changes: state_dict() copies nothing",
                f"keep a copy: copy.deepcopy({made[1]}.state_dict())",
            )


def _is_same(given: Any, held: torch.Tensor) -> bool:
    """Whether two tensors are one block of memory."""
    return held.numel() > 0 and (storage_of(given), given.data_ptr()) == (
        storage_of(held),
        held.data_ptr(),
    )


def untied_or_copied(file: str, variables: Variables) -> Iterator[Note]:
    """The loops of a file over the parameters of two networks that are one, and change
    the first one; in a function, with what it is given. Weights that a line ties, and
    that are two Parameters now.
    """
    for body in bodies(file):
        yield from _untied(body, variables)
    for source, loop, pairs in _loops(file):
        for target, given in pairs if _CHANGES.search(ast.unparse(loop)) else ():
            held = _held(target, variables)
            if target != given and held and held == _held(given, variables):
                yield _copied(source, target, given)


def _loops(file: str) -> Iterator[tuple[SourceLine, Any, list[tuple[str, str]]]]:
    """The loops of a file over the parameters of two networks, with these: as the loop
    calls them, and as calls of its function do.
    """
    for body in bodies(file):
        for source, match in matching(file, _LOOP, body):
            calls = matching(file, rf"\b{body.function}\(([\w.]+), ([\w.]+)[,)]")
            function = next(iter(blocks_around(file, source.line)), None)
            takes = [each.arg for each in function.args.args[:2]] if function else []
            order = (2, 1) if takes == [match[2], match[1]] else (1, 2)
            pairs = [(match[1], match[2])]
            pairs += [(call[order[0]], call[order[1]]) for _, call in calls]
            yield source, loops_around(file, source.line)[-1], pairs


def rebound(variables: Variables) -> Iterator[Note]:
    """The lines that give the name of a copy to the network that it was copied from,
    where both names hold that now.
    """
    for file in files_of(variables):
        for source, match in matching(file, r"^([\w.]+) = ([\w.]+)$"):
            target, given = match.groups()
            last, of = target.rpartition(".")[2], given.rpartition(".")[2]
            is_copy = rf"\b{last} = copy\.deepcopy\((?:\w+\.)*{of}\)"
            held = _held(target, variables)
            if last == of or not held or held != _held(given, variables):
                continue
            # an `if` may choose between the two
            blocks = blocks_around(file, source.line, ast.If)
            chosen = [block for block in blocks if isinstance(block, ast.If)]
            for copy, _ in matching(file, is_copy):
                if not any(covers(block, copy.line) for block in chosen):
                    yield _copied(source, target, given)


def averaged(models: Models, variables: Variables, trained: set[int]) -> Iterator[Note]:
    """The loops in which one network becomes an average of itself and another one, where
    both are among what is `trained`.
    """
    modules = [module for _, model in models for _, module in submodules(model)]
    spaces = [variables, *([{"self": module}] for module in modules)]
    every = chain.from_iterable(map(_loops, files_of(variables)))
    for source, loop, pairs in every:
        place = _averaged(loop)
        if place is None:
            continue
        for pair, space in product(pairs, spaces):
            target, other = pair[place], pair[1 - place]
            held = set(_held(target, space)), set(_held(other, space))
            if not any(map(trained.isdisjoint, held)) and held[0] != held[1]:
                yield Kind.AVERAGED, source, target, other


def _averaged(loop: Any) -> int | None:
    """Which of two networks a loop over their parameters makes an average of both."""
    names = [part.id for part in ast.walk(loop.target) if is_a(part, ast.Name)]
    body = list(map(ast.unparse, flattened(loop.body)))
    for place, name in enumerate((names[len(names) // 2 - 1], names[-1])):
        if any(re.search(_AVERAGE.format(name), statement) for statement in body):
            return place
    return None


_SHARES = r"([\w.]+)\.data = ([\w.]+)\.data$"


def sharing(models: Models, variables: Variables, trained: set[int]) -> Iterator[Note]:
    """The lines that give parameters of one model the numbers of another one, which is
    `trained`, and copy none.
    """
    homes: dict[object, dict[int, str]] = {}
    for name, model in models:
        for _, held, kind in registered("", model):
            place = _place(held) if kind == "parameter" else None
            if place is not None:
                homes.setdefault(place, {}).setdefault(id(held), name)
    for several in homes.values():
        moving = [name for key, name in several.items() if key in trained]
        if not moving or not {*several.values()}.difference(moving):
            continue
        for file in files_of(variables):
            is_averaged = any(
                _averaged(loop) is not None for _, loop, _ in _loops(file)
            )
            for source, match in matching(file, _SHARES):
                # once, and for good, it may be meant
                if not (is_averaged or len(loops_around(file, source.line)) > 1):
                    continue
                yield (
                    Kind.NO_EFFECT,
                    source,
                    match[0],
                    "copies no numbers: both have the same, and what changes one changes the other",
                    f"copy them: {match[1]}.data.copy_({match[2]}.data)",
                )
        return


_KEEPS = (
    r"\b{0}(?:\[[^\]]*\])? = (?:.*?(\.data\b|\.detach\(\))(?!\.clone|\.copy)"
    r"|list\([\w.]+\.parameters\(\)\)$|\[(\w+) for \2 in [\w.]+\.parameters\(\)\]$).*"
)


def averaged_with_itself(
    models: Models, variables: Variables, trained: set[int]
) -> Iterator[Note]:
    """The lines that keep parameters which are `trained` in a container, to average them,
    and copy none.
    """
    held = [t for _, model in models for t in parameters(model) if id(t) in trained]
    places = {_place(tensor) for tensor in held} - {None}
    for name, kept in _containers(variables):
        tensors = [each for each in kept if is_a(each, torch.Tensor)]
        if not tensors or any(_place(each) not in places for each in tensors):
            continue
        for file in files_of(variables):
            if not _is_averaged(file, re.escape(name)):
                continue
            for source, match in matching(file, _KEEPS.format(re.escape(name))):
                mend = f"use {match[1]}.clone()"
                if match[1] is None:
                    mend = "[p.detach().clone() for p in ...]"
                yield (
                    Kind.NO_EFFECT,
                    source,
                    match[0],
                    "keeps the parameters themselves and copies no numbers: an average changes the model, and is never another",
                    f"keep copies: {mend}",
                )


def _is_averaged(file: str, name: str) -> bool:
    """Whether code makes an average of the elements of a container, in place."""
    element = rf"(?:\w+\.)*{name}\[[^\]]*\]"
    if any(matching(file, _AVERAGED.format(element))):
        return True
    for loop in (each for body in bodies(file) for each in body.statements):
        through = ast.unparse(loop.iter) if isinstance(loop, ast.For) else ""
        if re.search(rf"\b{name}\b", through):
            texts = list(map(ast.unparse, flattened(loop.body)))  # type: ignore[attr-defined]
            patterns = [_AVERAGED.format(variable) for variable in assigned(loop)[0]]
            if any(re.search(one, text) for text in texts for one in patterns):
                return True
    return False


def _containers(variables: Variables) -> Iterator[tuple[str, list[Any]]]:
    """What lists and dicts hold that are variables, or attributes of variables."""
    for space in variables:
        for name, value in list(space.items()):
            attributes: dict[str, Any] = {name: value}
            if not is_a(value, torch.nn.Module):
                attributes |= own_attributes(value)
            for key, kept in attributes.items():
                if type(kept) in (dict, OrderedDict):
                    yield key, list(islice(kept.values(), MOST))
                elif type(kept) is list:
                    yield key, kept[:MOST]


def _place(tensor: torch.Tensor) -> object:
    """The memory that a tensor has; None where that is not known, or nothing."""
    if not is_plain(tensor) or not tensor.numel():
        return None
    return storage_of(tensor), tensor.data_ptr(), tensor.numel()


def files_of(variables: Variables) -> list[str]:
    """The files that variables belong to."""
    files = dict.fromkeys(space.get("__file__") for space in variables)
    return sorted(file for file in files if type(file) is str)


def _held(path: str, variables: Variables) -> list[int]:
    """The identities of the parameters of the module that a name holds, as far as that
    is known.
    """
    value = _value(path, variables)
    return [*map(id, parameters(value))] if is_a(value, torch.nn.Module) else []


def _value(path: str, variables: Variables) -> Any:
    """What a name with dots holds, None where that is not known."""
    first, *rest = path.split(".")
    return attribute_of(value_of(first, variables), rest)


def untied_by_modules(models: Models) -> Iterator[Note]:
    """Weights that a line in the constructor of a module ties, and that are two
    Parameters now.
    """
    for _, model in models:
        for _, module in submodules(model):
            code = getattr(type(module).__init__, "__code__", None)
            if code is not None and not is_foundation(code.co_filename):
                body, own = body_of(code), {code.co_varnames[0]: module}
                # few constructors tie anything
                if any(matching(body.file, _TIE, body)):
                    yield from _untied(body, [own, _defaults(type(module))])


def _defaults(kind: Any) -> dict[str, object]:
    """What the parameters of a constructor are, where no call in its file gives one."""
    made = kind.__init__
    code, given = made.__code__, dict[str, object](made.__kwdefaults__ or {})
    names = code.co_varnames[: code.co_argcount]
    values = made.__defaults__ or ()
    given.update(zip(names[len(names) - len(values) :], values))
    for call in ast.walk(text_of(code.co_filename).tree):
        if isinstance(call, ast.Call) and called(call) == kind.__name__:
            passed = [*names[1 : len(call.args) + 1], *(k.arg for k in call.keywords)]
            if None in passed or any(isinstance(a, ast.Starred) for a in call.args):
                return {}
            given = {name: given[name] for name in given if name not in passed}
    return given


def _untied(body: Body, variables: Variables) -> Iterator[Note]:
    bound = Counter[str]()
    for statement in body.statements:
        # a loop gives its variable another value in each turn
        bound.update(assigned(statement)[0] * (1 + isinstance(statement, ast.For)))
    for source, match in matching(body.file, _TIE, body):
        if any(bound[name.partition(".")[0]] > 1 for name in match.groups()):
            continue  # it may hold another module by now
        weights = [_value(name, variables) for name in match.groups()]
        untied = all(is_a(each, torch.nn.Parameter) for each in weights)
        untied = untied and weights[0] is not weights[1]
        blocks = blocks_around(body.file, source.line, ast.If) if untied else ()
        chosen = [block for block in blocks if isinstance(block, ast.If)]
        is_run = all(
            any(covers(each, source.line) for each in block.body)
            and _is_met(block.test, variables)
            for block in chosen
        )
        if untied and is_run:
            yield (
                Kind.NO_EFFECT,
                source,
                match[0],
                "ties two weights, of which one was made anew later: they are two Parameters now",
                "tie them last, behind whatever makes one of them anew",
            )


def _is_met(test: ast.expr, variables: Variables) -> bool:
    """Whether a condition is an attribute that is true now, also of what a constructor
    was given and keeps under the same name, or the default of what it was not given. Of
    another one nobody knows whether it was.
    """
    text, own = ast.unparse(test), next(iter(variables[0]), "")
    return True in (_value(text, variables), _value(f"{own}.{text}", variables))


def _copied(source: SourceLine, target: str, given: str) -> Note:
    """A line copies one network to itself: told where the second name was given to it."""
    last, of = target.rpartition(".")[2], given.rpartition(".")[2]
    second = rf"\b{last} = (?:copy\.copy\()?(?:\w+\.)*{of}\)?$"
    made: Iterator[SourceLine] = (line for line, _ in matching(source.file, second))
    return (
        Kind.NO_EFFECT,
        next(made, source),
        f"the copy from {given} to {target}",
        "makes no second network: both names hold the same parameters",
        f"make a copy: {last} = copy.deepcopy({given})",
    )
