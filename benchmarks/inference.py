"""How often the modules that `gradviz.walk` infers from parameters are those that a recording notes.

    python -m benchmarks.inference              # a table of all models
    python -m benchmarks.inference GPT Swin     # some
    python -m benchmarks.inference GPT --wrong  # and every node that differs

Differ: of the backward functions, leaves not counted, how many do not lie in the module that called them. Never made: how many
lie in a module that had no part in them; elsewhere: not even the one that called them is around it. Calls: how many lie in the
same call of their module, where it was called several times. The last row is of the nodes of all models. Models of Hugging Face
are measured where `transformers` is installed.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

import gradviz
from benchmarks.inferred import CASES
from benchmarks.inferred.case import Case
from gradviz.graph import Graph


class Agreement(NamedTuple):
    """How two graphs of one loss agree, and where they do not: id, op, recorded module, inferred one."""

    nodes: int
    same_module: int
    same_call: int
    never_made: int
    elsewhere: int
    wrong: tuple[tuple[int, str, str, str], ...]

    @property
    def share(self) -> float:
        """Of the nodes, those with the same module."""
        return self.same_module / self.nodes

    @property
    def calls(self) -> float:
        """Of the nodes, those in the same call."""
        return self.same_call / self.nodes


def both(case: Case) -> tuple[Graph, Graph]:
    """The recorded graph of a model's loss, and the one inferred."""
    torch.manual_seed(0)
    model, run = case()
    with gradviz.record() as recording:
        loss = run()
    return recording.graph(loss, model=model), gradviz.walk(loss, model=model)


def agreement(recorded: Graph, inferred: Graph) -> Agreement:
    """Compare the scopes of the nodes that ran an op."""
    checked = [i for i, node in enumerate(recorded.nodes) if node.sequence is not None]
    same_call = never_made = elsewhere = 0
    wrong = []
    for i in checked:
        told, guess = _place(recorded, i), _place(inferred, i)
        same_call += told == guess
        if told[0] != guess[0]:
            node = recorded.nodes[i]
            wrong.append((node.sequence or 0, node.op, told[0], guess[0]))
            if not _is_around(guess[0], told[0]):
                never_made += 1
                elsewhere += not _is_around(told[0], guess[0])
    same = len(checked) - len(wrong)
    found = tuple(sorted(wrong))
    return Agreement(len(checked), same, same_call, never_made, elsewhere, found)


def _is_around(outer: str, inner: str) -> bool:
    return outer == "outside" or f"{inner}.".startswith(f"{outer}.")


def _place(graph: Graph, node: int) -> tuple[str, int]:
    scope = graph.nodes[node].scope
    return (
        ("outside", 0)
        if scope is None
        else (graph.scopes[scope].path, graph.scopes[scope].call)
    )


def main(words: list[str]) -> None:
    """Print the table."""
    wanted = [word for word in words if not word.startswith("--")]
    columns = (
        "model",
        "nodes",
        "differ",
        "never made",
        "elsewhere",
        "calls",
        "wrong in",
    )
    table = Table(*columns)
    every = []
    for name, case in CASES.items():
        if wanted and name not in wanted:
            continue
        found = agreement(*both(case))
        every.append(found)
        where = ", ".join(
            dict.fromkeys(
                f"{told or 'model'}, not {guess or 'model'}"
                for *_, told, guess in found.wrong
            )
        )
        short = where if len(where) <= 80 else where[:77] + "..."
        table.add_row(name, *_row(found), short)
        if "--wrong" in words:
            for line in found.wrong:
                print(*line, sep="\t")
    sums = (sum(counts) for counts in zip(*(found[:-1] for found in every)))
    table.add_row("all", *_row(Agreement(*sums, wrong=())), "")
    Console(width=160).print(table)


def _row(found: Agreement) -> list[str]:
    differ = found.nodes - found.same_module
    counts = (differ, found.never_made, found.elsewhere, found.same_call)
    return [str(found.nodes), *(f"{count / found.nodes:.1%}" for count in counts)]


if __name__ == "__main__":
    main(sys.argv[1:])
