"""How often the modules that `gradviz.walk` infers from parameters are those that a recording notes.

    python -m benchmarks.inference              # a table of all models
    python -m benchmarks.inference GPT Swin     # some
    python -m benchmarks.inference GPT --wrong  # and every node that differs

Share: of the backward functions, leaves not counted, how many lie in the module that called them. Calls: how many lie in the same
call of it, too, where a module was called several times. Models of Hugging Face are measured where `transformers` is installed.
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
    same_call = 0
    wrong = []
    for i in checked:
        told, guess = _place(recorded, i), _place(inferred, i)
        same_call += told == guess
        if told[0] != guess[0]:
            wrong.append(
                (
                    recorded.nodes[i].sequence or 0,
                    recorded.nodes[i].op,
                    told[0],
                    guess[0],
                )
            )
    return Agreement(
        len(checked), len(checked) - len(wrong), same_call, tuple(sorted(wrong))
    )


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
    table = Table("model", "nodes", "share", "calls", "wrong in")
    for name, case in CASES.items():
        if wanted and name not in wanted:
            continue
        found = agreement(*both(case))
        where = ", ".join(
            dict.fromkeys(
                f"{told or 'model'}, not {guess or 'model'}"
                for *_, told, guess in found.wrong
            )
        )
        short = where if len(where) <= 80 else where[:77] + "..."
        table.add_row(
            name, str(found.nodes), f"{found.share:.1%}", f"{found.calls:.1%}", short
        )
        if "--wrong" in words:
            for line in found.wrong:
                print(*line, sep="\t")
    Console(width=140).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
