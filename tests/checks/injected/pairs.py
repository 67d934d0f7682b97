"""Pairs of a correct program and the same with a fault: whether the fault is real, and what `check` says of it."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import io
import json
import multiprocessing
import os
import random
import re
import runpy
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.checks.injected.operators import OPERATORS, Operator, places
from tests.command_line import CliRunner
from tests.forks import MODULES, of_gradviz

ROOT = Path(__file__).parents[3]
FOLDERS = Path(__file__).parent / "programs", ROOT / "tests/real/programs", ROOT / "samples"
# longer than seconds, or nothing that trains
LEFT_OUT = {"llama_size", "out_of_memory", "fsdp", "ddp", "pipeline", "compiled", "ddp_unused", "ddp_single_process"}
EACH = 12
"""Pairs of an operator, at most."""
HELD_BACK = 2
"""Programs of each operator whose result is counted apart: nothing was fitted to them."""


class Pair(NamedTuple):
    """A program with a fault. `lines` are those that changed."""

    operator: Operator
    program: Path
    text: str
    lines: frozenset[int]
    held_back: bool


class Outcome(NamedTuple):
    """What came of a pair: `real` where the gradients are others than before."""

    pair: Pair
    real: bool = False
    found: bool = False
    line: bool = False
    heals: bool = False
    said: str = ""


def programs() -> list[Path]:
    """The correct programs that train something."""
    files = sorted(file for folder in FOLDERS for file in folder.glob("*.py"))
    return [file for file in files if file.stem not in LEFT_OUT and ".backward(" in file.read_text()]


@lru_cache
def original(program: Path) -> str:
    """A program as Python spells it, so that a mutant differs in its fault alone."""
    return ast.unparse(ast.parse(program.read_text())) + "\n"


def pairs(seed: int, files: Sequence[Path]) -> Iterator[Pair]:
    """Some of each operator, of these programs drawn by the seed."""
    for operator in OPERATORS:
        choose = random.Random(f"{seed} {operator.name}")
        where = {file: list(places(original(file), operator)) for file in files}
        fitting = [file for file, found in where.items() if found]
        choose.shuffle(fitting)
        drawn = [(file, choose.choice(where[file])) for file in fitting * 2]
        for file, place in list(dict.fromkeys(drawn))[:EACH]:
            text = place.mutant()
            yield Pair(operator, file, text, changed(place.text, text), file in fitting[:HELD_BACK])


def changed(before: str, after: str) -> frozenset[int]:
    """The lines of a text that are new, or next to a line that is gone."""
    lines = set[int]()
    match = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    for kind, _, _, first, last in match.get_opcodes():
        if kind != "equal":
            lines.update(range(first + 1, max(last, first + 1) + 1))
    return frozenset(lines)


# -- one program -------------------------------------------------------------------------------------------------------


def _rounded(tensor: torch.Tensor | None) -> float | None:
    return None if tensor is None else float(f"{tensor.detach().double().norm().item():.4g}")


def gradients(path: Path) -> list[object]:
    """The size of each gradient at each step, and how the program ends."""
    seen: list[object] = []

    def stepping(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if len(seen) < 200:
            tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
            seen.append([_rounded(tensor.grad) for tensor in tensors])
            seen.append([group["lr"] for group in optimizer.param_groups])

    hook, result = register_optimizer_step_pre_hook(stepping), dict[str, Any]()
    torch.manual_seed(0)
    random.seed(0)
    try:
        result = runpy.run_path(str(path), run_name="__main__")
    except (Exception, SystemExit) as error:
        seen.append(type(error).__name__)
    finally:
        hook.remove()
    modules = [value for value in result.values() if isinstance(value, torch.nn.Module)]
    seen += [
        _rounded(weight) for module in modules for weight in module.state_dict().values() if weight.is_floating_point()
    ]
    return seen


def alarms(path: Path) -> list[dict[str, Any]]:
    """The errors and warnings of `check`, each with its line."""
    torch.manual_seed(0)
    random.seed(0)
    result = CliRunner().invoke(_cli(), ["check", str(path), "--json"])
    if not isinstance(result.exception, (SystemExit, type(None))):
        return [{"id": "crash", "summary": repr(result.exception), "where": "", "fix": ""}]
    return [each for each in json.loads(result.stdout)["findings"] if each["severity"] != "note"]


def _cli() -> Any:
    from gradviz.cli.main import cli

    return cli


def looked_at(text: str) -> tuple[list[object], list[dict[str, Any]]]:
    """Gradients and alarms of a program, in a folder of its own."""
    torch.set_num_threads(1)
    argv, folder = sys.argv, os.getcwd()
    with tempfile.TemporaryDirectory() as place, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(place) / "script.py"
        path.write_text(text)
        os.chdir(place)
        sys.argv = [str(path)]
        try:
            return gradients(path), alarms(path)
        finally:
            sys.argv = argv
            os.chdir(folder)


def judged(
    pair: Pair, before: tuple[list[object], list[dict[str, Any]]], after: tuple[list[object], list[dict[str, Any]]]
) -> Outcome:
    """Whether the fault is real, and what was said of it that was not said of the correct program."""
    known = {(each["id"], each["summary"]) for each in before[1]}
    said = [each for each in after[1] if (each["id"], each["summary"]) not in known]
    lines, text = pair.lines, pair.text.splitlines()
    named = [each.get("line") for each in said if "script.py" in (each.get("file") or "script.py")]
    line = any(number in lines or (number and re.search(pair.operator.line, text[number - 1])) for number in named)
    heals = any(re.search(pair.operator.undone, each["fix"]) for each in said)
    words = "; ".join(f"{each['id']}: {each['summary']} ({each['where']}) -> {each['fix']}" for each in said)
    # what is no tensor has no such method: the program breaks, and its gradients do not
    broken = {"AttributeError", "NameError", "TypeError"}.intersection(
        each for each in after[0] if isinstance(each, str)
    )
    real = not broken and (pair.operator.silent or before[0] != after[0])
    if pair.operator.raises:
        real = _failed(after[0]) and not _failed(before[0])
    return Outcome(pair, real, bool(said), bool(line), heals, words)


def _failed(seen: list[object]) -> bool:
    """Whether a program ended with an error."""
    return any(isinstance(each, str) for each in seen)


# -- all of them -------------------------------------------------------------------------------------------------------


def outcomes(chosen: Iterable[Pair], processes: int = 2) -> Iterator[Outcome]:
    """The same of several pairs; each program runs in a process of its own."""
    chosen = list(chosen)
    for name in (*MODULES, *of_gradviz()):  # once, and not in each process
        importlib.import_module(name)
    texts = list(dict.fromkeys([*(original(pair.program) for pair in chosen), *(pair.text for pair in chosen)]))
    with multiprocessing.get_context("fork").Pool(processes, maxtasksperchild=1) as pool:
        seen = dict(zip(texts, pool.map(_guarded, texts, chunksize=1)))
    for pair in chosen:
        yield judged(pair, seen[original(pair.program)], seen[pair.text])


def _guarded(text: str) -> tuple[list[object], list[dict[str, Any]]]:
    """What takes too long counts as a program that fails at once."""
    import signal

    signal.alarm(60)
    try:
        return looked_at(text)
    except Exception as error:
        return [repr(error)], []
