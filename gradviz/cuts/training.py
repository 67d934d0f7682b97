"""Which loss and which optimizer reach which parameter: one table of a program, as data
and for a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from gradviz.armour.isolation import isolated
from gradviz.cuts.answers import Answers
from gradviz.explanation import all_reasons, opened, optimized, optimizers
from gradviz.graph import SourceLine
from gradviz.graph.kinds import why_zero
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
    reaches them, the optimizers that hold them, and why no gradient does, or one of 0.
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
    """What trains what, at one backward call or several."""

    outputs: tuple[str, ...]
    parts: tuple[TrainedPart, ...]

    @property
    def is_complete(self) -> bool:
        """Whether a gradient reaches all that an optimizer holds."""
        return all(part.outputs for part in self.parts if part.optimizers)

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
        parts = dict(_parts(walked, answers, live.variables, reached))
    return _joined([root.name for root in graph.roots], parts)


def merged(calls: Sequence[Training]) -> Training:
    """What trains what over several backward calls."""
    by_name: dict[str, list[tuple[Training, TrainedPart]]] = {}
    for call in calls:
        for part in call.parts:
            for name in part.names:
                by_name.setdefault(name, []).append((call, part))

    parts: dict[str, TrainedPart] = {}
    for name, seen in by_name.items():
        reached = [part for _, part in seen if part.outputs]
        reasons = [(call.outputs, part.reason) for call, part in seen]
        best = next((part for part in reached if not part.reason), seen[-1][1])
        parts[name] = TrainedPart(
            _owner(name),
            _union(*(part.outputs for part in reached)),
            _union(*(part.optimizers for _, part in seen)),
            best.reason and all_reasons(reasons),
            best.cause,
        )
    return _joined(_union(*(call.outputs for call in calls)), parts)


def _union(*names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(chain(*names)))


def _owner(name: str) -> tuple[str]:
    return (name.rpartition(".")[0] or name,)


def _joined(outputs: Sequence[str], parts: Mapping[str, TrainedPart]) -> Training:
    """The parameters of one module of which the same holds as one part."""
    joined: dict[TrainedPart, list[str]] = {}
    for name, part in parts.items():
        joined.setdefault(part, []).append(name)
    whole = (part._replace(names=tuple(names)) for part, names in joined.items())
    return Training(tuple(outputs), tuple(whole))


def _parts(
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
        if outputs:
            reason, cause = why_zero(walked.graph, nodes[id(tensor)])
        else:
            answer = answers.answer(tensor, names[0])
            reason, cause = answer.words, answer.source

        held, owner = tuple(holders.get(id(tensor), ())), _owner(names[0])
        yield names[0], TrainedPart(owner, outputs, held, reason, cause)


def _holders(variables: Sequence[Namespace]) -> dict[int, list[str]]:
    """The optimizers that hold a tensor, by its identity."""
    holders: dict[int, list[str]] = {}
    for name, optimizer in optimizers(variables):
        for tensor in optimized(optimizer):
            holders.setdefault(id(tensor), []).append(name)
    return holders


def training_table(training: Training) -> RenderableType:
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
    for part in training.parts:
        outputs, holders = ", ".join(part.outputs), labels.names_text(part.optimizers)
        cells = part.title, outputs or "-", holders or "-", part.reason
        rows.append([Text(one_line(cell)) for cell in cells])
    if not rows:
        return Text("no variable holds a parameter")
    return FittedTable(columns, rows)
