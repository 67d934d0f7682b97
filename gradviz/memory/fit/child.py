"""Runs a script under the tracker, with another batch: `python -m gradviz.memory.fit.child SPECIFICATION RESULT`.

The batch is an option of the script's, a name that it assigns, or the `batch_size` of the first DataLoader. Is never imported by
the process that the user started.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from linecache import getline
from os.path import basename
from traceback import walk_tb
from typing import Any

from gradviz.errors import TargetError, text_of
from gradviz.packages import is_foundation, package_of
from gradviz.run.ending import Failure, users_code
from gradviz.run.engine import watching_backward, when_imported
from gradviz.run.program import Program, Target

_CHOSEN = "__gradviz_batch__"
_WITHOUT_WORKERS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "persistent_workers": False,
    "multiprocessing_context": None,
    "timeout": 0,
}


@dataclass
class Batch:
    """The batch to run with: `value`, None as the script has it. `now` is what the script has, as soon as it is met."""

    name: str
    value: int | None
    now: int | None = None
    met: bool = False

    def choose(self, own: Any) -> Any:
        """The batch in place of the script's own one."""
        self.met = True
        self.now = own if self.now is None and type(own) is int else self.now
        return own if self.value is None else self.value

    def arguments(self, given: Sequence[str]) -> list[str]:
        """The script's arguments with the option in them, where the batch is one."""
        words = list(given)
        for i, word in enumerate(words):
            option, _, joined = word.partition("=")
            if option == self.name:
                own = joined or (words[i + 1] if i + 1 < len(words) else "")
                value = str(self.choose(int(own) if own.isdigit() else own))
                words[i : i + 1 if joined else i + 2] = [f"{option}={value}"] if joined else [option, value]
                return words
        return words if self.value is None else [*words, self.name, str(self.value)]

    def watch_options(self) -> None:
        """Read the option's default from the script's own parser."""
        parsers: Any = argparse.ArgumentParser
        original = parsers.parse_known_args

        def parse(parser: argparse.ArgumentParser, *arguments: Any, **options: Any) -> Any:
            for action in parser._actions:
                if self.name in action.option_strings:
                    self.choose(action.default)
            return original(parser, *arguments, **options)

        parsers.parse_known_args = parse

    def assigned(self, source: bytes | str | ast.Module) -> ast.Module:
        """The script with the value of each assignment to the name, and of a parameter's default, replaced."""
        setattr(builtins, _CHOSEN, self.choose)
        module: ast.Module = _Assigned(self.name).visit(source if isinstance(source, ast.Module) else ast.parse(source))
        return ast.fix_missing_locations(module)

    def watch_loaders(self, alone: bool) -> None:
        """Give the first DataLoader that has a batch size this one, where no name says the batch. `alone`: without workers."""
        from torch.utils.data import DataLoader

        loaders: Any = DataLoader
        original = loaders.__init__
        parameters = signature(original)

        def create(loader: Any, *arguments: Any, **options: Any) -> None:
            given = parameters.bind(loader, *arguments, **options)
            given.apply_defaults()
            sampled = given.arguments["batch_sampler"] is not None
            if alone:
                given.arguments.update(_WITHOUT_WORKERS)
            if not self.name and not self.met and not sampled and given.arguments["batch_size"] is not None:
                given.arguments["batch_size"] = self.choose(given.arguments["batch_size"])
            original(*given.args, **given.kwargs)

        loaders.__init__ = create


class _Assigned(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def _chosen(self, value: ast.expr) -> ast.expr:
        return ast.Call(ast.Name(_CHOSEN, ast.Load()), [value], [])

    def _assignment(self, node: Any) -> Any:
        targets = getattr(node, "targets", None) or [node.target]
        named = any(isinstance(target, ast.Name) and target.id == self._name for target in targets)
        if named and node.value is not None:
            node.value = self._chosen(node.value)
        return node

    visit_Assign = visit_AnnAssign = _assignment

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        positional = [*node.posonlyargs, *node.args]
        with_default = positional[len(positional) - len(node.defaults) :]
        for names, defaults in ((with_default, node.defaults), (node.kwonlyargs, node.kw_defaults)):
            for i, (name, value) in enumerate(zip(names, defaults)):
                if name.arg == self._name and value is not None:
                    defaults[i] = self._chosen(value)
        return node


def run(specification: dict[str, Any]) -> dict[str, Any]:
    """Run the script until its second optimizer step, and return what the tracker noted, the batch and how it ended."""
    program = Program(Target(**specification["target"]))
    batch = Batch(specification["name"], specification["batch"])
    arguments = list(specification["arguments"])
    started: list[Any] = []
    if batch.name.startswith("-"):
        batch.watch_options()
        arguments = batch.arguments(arguments)
    elif batch.name:
        program.parts = {file: batch.assigned(part) for file, part in program.parts.items()}

    with ExitStack() as undo:

        def begin() -> None:
            from gradviz.memory.fit.tracker import Tracker
            from gradviz.recording.record import record

            if specification["fake"]:
                from torch._subclasses.fake_tensor import FakeTensorMode

                undo.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
            batch.watch_loaders(alone=specification["fake"])
            recording = undo.enter_context(record())
            started.append(
                undo.enter_context(Tracker(recording, gpu=specification["gpu"], autocast=specification["autocast"]))
            )

        undo.enter_context(when_imported("torch", begin))
        undo.enter_context(program.interpreter(arguments))
        undo.enter_context(watching_backward(lambda call: started[0].on_backward(call)))
        with users_code() as outcome:
            program.run()
        notes = started[0].notes() if started else None
    failure = outcome.failure
    if failure is not None:
        failure.show()
    return {"notes": notes, "error": _words(failure), "now": batch.now, "met": batch.met}


def _words(failure: Failure | None) -> tuple[str, str] | None:
    """How the script failed, and its own line."""
    if failure is None:
        return None
    if failure.exit_code is not None:
        return "ended", f" with code {failure.exit_code}"
    frames = [(frame.f_code.co_filename, line or 0) for frame, line in walk_tb(failure.error.__traceback__)]
    own = [at for at in frames if not (at[0].startswith("<") or is_foundation(at[0]) or package_of(at[0]))]
    place = "".join(f" at {basename(file)}:{line}, `{getline(file, line).strip()}`" for file, line in own[-1:])
    first, *others = text_of(failure.error).strip().splitlines() or [""]
    said = " … ".join([first, *others[-1:]])  # a DataLoader has the traceback of its worker between them
    return "failed", f"{place}: {type(failure.error).__name__}: {said}"


def main() -> None:
    """Read what to run, run it, write what was noted."""
    with open(sys.argv[1], encoding="utf-8") as file:
        specification = json.load(file)
    result = sys.argv[2]
    try:
        told = run(specification)
    except TargetError as error:
        told = {"notes": None, "error": ("failed", f": {error}"), "now": None, "met": False}
    with open(result, "w", encoding="utf-8") as file:
        json.dump(told, file)


if __name__ == "__main__":
    main()
