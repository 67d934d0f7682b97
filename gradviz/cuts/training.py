"""Which loss and which optimizer reach which parameter: one table of a program, as data
and for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gradviz.armour.isolation import isolated
from gradviz.cuts.answers import Answers
from gradviz.explanation import opened, optimizers
from gradviz.graph import SourceLine
from gradviz.graph.walks import behind
from gradviz.report import labels
from gradviz.report.results import displayed
from gradviz.variables.scanner import Namespace
from gradviz.walker.walk import Walked
from gradviz.wording import one_line, plural

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType
    from gradviz.run.outputs import LiveOutputs


class TrainedPart(NamedTuple):
    """Parameters of one module of which the same holds: the outputs whose gradient
    reaches them, the optimizers that hold them, and why no gradient does.
    """

    names: tuple[str, ...]
    outputs: tuple[str, ...]
    optimizers: tuple[str, ...]
    reason: str
    cause: SourceLine | None

    @property
    def title(self) -> str:
        """`net.0.weight`, or `net.0.*` for several."""
        owner, _, last = self.names[0].rpartition(".")
        return self.names[0] if len(self.names) == 1 or not last else f"{owner}.*"


@displayed("gradviz.cuts.training:training_table")
class Training(NamedTuple):
    """What trains what, at one backward call."""

    outputs: tuple[str, ...]
    parts: tuple[TrainedPart, ...]

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        parts = [part._asdict() for part in self.parts]
        return {"outputs": self.outputs, "parts": parts}

    def __repr__(self) -> str:
        return f"<Training: {plural(len(self.parts), 'part')}>"


def training(live: LiveOutputs) -> Training:
    """What trains what, before the backward of these outputs runs."""
    graph, walked = opened(live)
    with isolated():
        answers = Answers(live, walked)
        reached: dict[int, list[str]] = {}
        for root in graph.roots:
            for node in behind(graph, [root.node]):
                reached.setdefault(node, []).append(root.name)
        parts: dict[TrainedPart, list[str]] = {}
        for name, part in _each(walked, answers, live.variables, reached):
            parts.setdefault(part, []).append(name)
    joined = [part._replace(names=tuple(names)) for part, names in parts.items()]
    return Training(tuple(root.name for root in graph.roots), tuple(joined))


def _each(
    walked: Walked,
    answers: Answers,
    variables: Sequence[Namespace],
    reached: dict[int, list[str]],
) -> Iterator[tuple[str, TrainedPart]]:
    """Each parameter and leaf, with the name of its module in place of its own."""
    nodes = {id(leaf): node for node, leaf in walked.variables.items()}
    holders = _holders(variables)
    for tensor, names in walked.names.named():
        is_parameter = walked.names.kind(tensor) == "parameter"
        is_leaf = tensor.is_leaf and (is_parameter or id(tensor) in nodes)
        if not is_leaf and id(tensor) not in holders:
            continue
        outputs = tuple(reached.get(nodes.get(id(tensor), -1), ()))
        answer = answers.answer(tensor, names[0]) if not outputs else None
        reason = answer.words if answer is not None else ""
        cause = answer.source if answer is not None else None
        owner = names[0].rpartition(".")[0] or names[0]
        held = tuple(holders.get(id(tensor), ()))
        yield names[0], TrainedPart((owner,), outputs, held, reason, cause)


def _holders(variables: Sequence[Namespace]) -> dict[int, list[str]]:
    """The optimizers that hold a tensor, by its identity."""
    holders: dict[int, list[str]] = {}
    for name, optimizer in optimizers(variables):
        for group in optimizer.param_groups:
            for tensor in group["params"]:
                holders.setdefault(id(tensor), []).append(name)
    return holders


def training_table(found: Training) -> RenderableType:
    """A row for each part."""
    from gradviz.report.rich_parts import Text
    from gradviz.report.table import Column, FittedTable

    columns = [
        Column("parameters", "name"),
        Column("gradient from", "word"),
        Column("updated by", "word"),
        Column("why none", "text", 1),
    ]
    rows = []
    for part in found.parts:
        outputs, holders = map(labels.names_text, (part.outputs, part.optimizers))
        cells = part.title, outputs or "-", holders or "-", part.reason
        rows.append([Text(one_line(cell)) for cell in cells])
    if not rows:
        return Text("no variable holds a parameter")
    return FittedTable(columns, rows)
