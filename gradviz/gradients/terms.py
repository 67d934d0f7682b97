"""How much each term of a loss pulls on each module: its gradient alone, measured term by term."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch

from gradviz.gradients.flow import devices_of, size
from gradviz.gradients.live import LiveGraph, Start, custom_functions, once, stopped_note
from gradviz.gradients.replay import behind, replay
from gradviz.graph import Graph
from gradviz.report import labels
from gradviz.report.results import displayed, note_lines
from gradviz.report.rich_parts import Group, RenderableType, Text
from gradviz.report.table import Amount, Column, table_of
from gradviz.wording import bar, few, number, one_line, plural, share

_SUMS = ("AddBackward0", "SubBackward0", "AddBackward1")


class TermPull(NamedTuple):
    """The gradient that one term gives to the parameters of a module, those inside included; its share of that of all terms.

    None where a custom Function that was not called leads to one of them: what reaches it is not known.
    """

    module: str
    term: str
    norm: float | None
    share: float | None


@displayed("gradviz.gradients.terms.terms_table")
class Terms(NamedTuple):
    """`rows` go by module, then by term."""

    graph: Graph
    terms: tuple[str, ...]
    rows: tuple[TermPull, ...]
    notes: tuple[str, ...]


def measure_terms(live: LiveGraph, *, run_custom: bool = False) -> Terms:
    """The gradient of each term alone, as `torch.autograd.grad(term, parameters)` computes it. Writes no .grad."""
    graph = live.graph
    stops = (*live.closed, *(() if run_custom else custom_functions(graph)))
    names: list[str] = []
    pulls: dict[str, list[float]] = {}
    modules = _modules(graph)
    with torch.random.fork_rng(devices=devices_of(graph)):  # what a checkpoint recomputes may draw random numbers
        for start in list(_terms(live, stops)):
            norms = _leaf_norms(live._replace(starts=(start,)), stops)
            names.append(_named(graph, start.node))
            for module, leaves in modules.items():
                pulls.setdefault(module, []).append(math.hypot(*(norms.get(leaf, 0.0) for leaf in leaves)))
    unmeasured = frozenset(behind(graph, stops))
    rows = tuple(
        TermPull(module, term, None, None)
        if unmeasured.intersection(modules[module])
        else TermPull(module, term, norm, norm / sum(norms) if sum(norms) else 0.0)
        for module, norms in pulls.items()
        for term, norm in zip(names, norms)
    )
    stopped = tuple(stop for stop in stops if stop not in unmeasured)
    notes = (*live.notes, *stopped_note(graph, stopped, unmeasured, live.closed), *graph.notes)
    return Terms(graph, tuple(names), rows, notes)


def _terms(live: LiveGraph, stops: tuple[int, ...]) -> Iterator[Start]:
    """Where the gradient of each term starts: what single numbers are added up to the output."""
    graph = live.graph
    sums: set[int] = set()
    waiting = [start.node for start in live.starts]
    while waiting:
        node = waiting.pop()
        record = graph.nodes[node]
        if record.op in _SUMS and record.outputs and record.outputs[0] is not None and record.outputs[0].shape == ():
            sums.add(node)
            waiting += [edge.producer for edge in graph.inputs(node)]
    yield from (start for start in live.starts if start.node not in sums)
    for step in replay(live, only=sums, stops=stops):
        for edge in graph.inputs(step.node):
            gradient = step.outgoing[edge.position] if step.outgoing else None
            if edge.producer not in sums and gradient is not None:
                yield Start(edge.producer, edge.output, gradient)


def _leaf_norms(live: LiveGraph, stops: tuple[int, ...]) -> dict[int, float]:
    """The norm of the gradient at each leaf, by node."""
    norms: dict[int, float] = {}

    def run() -> None:
        for step in replay(live, stops=stops):
            if step.node in live.graph.leaf_of and step.incoming and step.incoming[0] is not None:
                norms[step.node] = size(step.incoming[0]).norm

    once(live.graph, run)
    return norms


def _modules(graph: Graph) -> Mapping[str, list[int]]:
    """The leaves of each module and of those around it, by path; of a leaf outside every module, by its name."""
    found: dict[str, list[int]] = {}
    for leaf in graph.leaves:
        name = labels.leaf_title(leaf)
        parts = name.split(".")
        for end in range(1, len(parts)) if leaf.kind == "parameter" and len(parts) > 1 else (len(parts),):
            found.setdefault(".".join(parts[:end]), []).append(leaf.node)
    return dict(sorted(found.items()))


def _named(graph: Graph, node: int) -> str:
    """The variable of a term, of what it is a multiple of, or its op."""
    title, after = labels.op_title(graph, graph.nodes[node]), ""
    while not title.op and len(graph.inputs(node)) == 1 and graph.nodes[node].op.startswith(("Mul", "Div", "Neg")):
        after = f" {title.name}{after}"
        node = graph.inputs(node)[0].producer
        title = labels.op_title(graph, graph.nodes[node])
    leaf = graph.leaf_of.get(node)
    return f"{labels.leaf_title(leaf) if leaf is not None else title.name}{after}"


def terms_table(terms: Terms, top: int | None = None) -> RenderableType:
    """The first `top` rows (0 or None for all)."""
    shown = terms.rows[:top] if top else terms.rows
    output = few([one_line(labels.root_title(root)) for root in terms.graph.roots], 3)
    columns = (
        (Column("module", "name"), lambda row: Text(one_line(row.module))),
        (Column("term", "name"), lambda row: Text(one_line(row.term))),
        (Column("norm", "number"), lambda row: Amount(row.norm, number(row.norm))),
        (Column("share", "number"), lambda row: Amount(row.share, share(row.share))),
        (Column("bar", "bar", 1), lambda row: Text(bar(row.share), "cyan")),
    )
    head = Text(f"{plural(len(terms.terms), 'term')} of {output}: the gradient of each alone, by module", "bold")
    rest = [Text(labels.more(len(terms.rows) - len(shown)), "dim")] if len(shown) < len(terms.rows) else []
    return Group(head, Text(), table_of(columns, shown), *rest, *note_lines(terms.notes))
