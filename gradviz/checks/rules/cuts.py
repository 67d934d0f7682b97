"""Checks on what takes part in a loss without a gradient: terms that were cut off, and operations whose derivative is zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradviz.checks.context import CheckContext
from gradviz.checks.registry import Diagnosis, check
from gradviz.checks.rules.roots import cut_words, expression, mend_all
from gradviz.checks.words import (
    code,
    line,
    listed,
    title,
    verb,
)
from gradviz.graph import Graph, Node, SourceLine
from gradviz.source.provenance import DetachPoint
from gradviz.source.search import lines_behind
from gradviz.wording import one_line, plural

_SUMS = ("AddBackward0", "SubBackward0", "RsubBackward1", "RsubBackward0", "AddBackward1", "SubBackward1")
_SCALED = ("MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1", "NegBackward0")
_SAME = (
    "ViewBackward0",
    "SqueezeBackward0",
    "SqueezeBackward1",
    "UnsqueezeBackward0",
    "AliasBackward0",
    "CloneBackward0",
    "ToCopyBackward0",
    "SelectBackward0",
)
_REDUCED = ("SumBackward0", "SumBackward1", "MeanBackward0", "MeanBackward1")
_JOINED = ("StackBackward0", "CatBackward0")
_FLAT = (
    "RoundBackward0",
    "RoundBackward1",
    "FloorBackward0",
    "CeilBackward0",
    "TruncBackward0",
    "SignBackward0",
    "HeavisideBackward0",
    "FloorDivideBackward0",
)


@check("constant-term", "warning", "a term of the loss has no graph, so it has no effect on the training")
def constant_term(context: CheckContext) -> Iterator[Diagnosis]:
    """A term is added to the loss that was computed from something with a graph, and has none itself.

    Backward passes it by: it changes the number that is printed, and no gradient. Mostly it was computed with argmax or a
    comparison, under `torch.no_grad()` in a helper, with NumPy, or added as `.item()`; or it is a gradient penalty without
    `create_graph=True`.

    How it is found: every operation that takes a tensor with a graph and gives one without is noted while the script runs, and
    what it gave is followed to the sum. Only for a loss that is a single number, and for `check` on a script.

    What to do: mend the line that is named, so that the term keeps its graph; or leave the term out.

    When to ignore it: when the term is there for the printed number only.

    ```python
    import torch

    model = torch.nn.Linear(3, 2)
    scores = model(torch.ones(4, 3))
    mistakes = (scores.argmax(1) != 1).float().mean()
    loss = torch.nn.functional.cross_entropy(scores, torch.ones(4).long()) + 0.5 * mistakes
    loss.backward()
    ```
    """
    graph = context.graph
    entered = {one.node: one.cuts for one in context.entered}
    roots = [root.node for root in graph.roots if root.node is not None and root.tensor.shape in ((), (1,))]
    if not (entered or context.numbers) or len(roots) != 1:
        return
    sums, subtracts = _sums(graph, roots[0])
    for node in sums:
        record = graph.nodes[node]
        source = record.script_line or record.source
        term = _term({edge.position for edge in graph.inputs(node)}, source)
        cuts = entered.get(node) or _numbers(context, source, "" if subtracts else term)
        if not cuts or not record.none_inputs:
            continue
        if subtracts and all(cut.kind == "detach" for cut in cuts):
            continue  # x + (y - x).detach() and the like: a value without a gradient is wanted
        yield Diagnosis(
            f"{one_line(term) or 'a term of the loss'} has no graph: adding it to the loss has no effect on the training",
            (one_line(term),) if term else (),
            listed(dict.fromkeys(line(cut.source) for cut in cuts)),
            f"it is added in {code(source)}; {'; '.join(dict.fromkeys(map(cut_words, cuts)))}",
            mend_all(cuts),
            (node,),
            source=cuts[0].source,
            part=expression(cuts[0]),
        )


def _numbers(context: CheckContext, source: SourceLine | None, term: str) -> tuple[DetachPoint, ...]:
    """The Python numbers made in the line of a sum, or in lines that the term which is added was computed in."""
    if source is None or not context.numbers:
        return ()
    here = tuple(cut for cut in context.numbers if cut.source == source)
    behind = {one.line for one in lines_behind(source, term)} if term and not here else set()
    return here or tuple(cut for cut in context.numbers if cut.source.file == source.file and cut.source.line in behind)


def _sums(graph: Graph, root: int) -> tuple[list[int], bool]:
    """The nodes that add up a single number, from the root down, and whether one of them subtracts."""
    found: list[int] = []
    seen, waiting, subtracts = {root}, [root], False
    while waiting:
        node = waiting.pop()
        record = graph.nodes[node]
        edges = graph.inputs(node)
        if record.op in _SUMS or record.op in _JOINED:
            found.append(node)
            subtracts |= "ub" in record.op
        elif not (record.op in _SCALED and len(edges) == 1) and record.op not in (*_SAME, *_REDUCED):
            continue
        for edge in edges:
            made = graph.nodes[edge.producer]
            joins = record.op in _REDUCED and made.op in _JOINED
            if edge.producer not in seen and (joins or _is_number(made, edge.output)):
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return found, subtracts


def _is_number(node: Node, output: int) -> bool:
    made = node.outputs[output] if output < len(node.outputs) else None
    return made is not None and made.shape in ((), (1,))


def _term(live: set[int], source: SourceLine | None) -> str:
    """What the code adds, where the line shows it: the side of the sum without a graph. `live` are those that have one."""
    try:
        statement = ast.parse(source.text.strip()).body[0] if source is not None else None
    except (SyntaxError, IndexError):
        return ""
    if isinstance(statement, ast.AugAssign):
        return ast.unparse(statement.value)
    value = getattr(statement, "value", None)
    inside = ast.walk(value) if isinstance(value, ast.expr) else ()
    sums = [one for one in inside if isinstance(one, ast.BinOp) and isinstance(one.op, (ast.Add, ast.Sub))]
    if len(sums) != 1 or len(live) != 1:
        return ""
    return ast.unparse(sums[0].right if 0 in live else sums[0].left)


@check("zero-derivative", "warning", "parameters reach the loss only through operations whose derivative is zero")
def zero_derivative(context: CheckContext) -> Iterator[Diagnosis]:
    """Every way from a parameter to the loss leads through rounding or the like: its gradient is zero, always.

    `round`, `floor`, `ceil`, `trunc` and `sign` are flat: they have a graph, nothing fails, and what comes back is zero.

    How it is found: in the graph alone, without reading a number.

    What to do: pass the gradient around the operation, `x + (x.round() - x).detach()`, or use a smooth function.

    When to ignore it: when these parameters are not to be trained.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    loss = (torch.round(model(torch.ones(4, 3))) - 1).abs().mean()
    loss.backward()
    ```
    """
    graph = context.graph
    flat = [node.id for node in graph.nodes if node.op in _FLAT]
    if not flat or context.guessed:
        return
    alive, stops = reached(graph, set(flat))
    lost = [leaf for leaf in graph.leaves if leaf.node not in alive and leaf.kind == "parameter"]
    if not lost:
        return
    names = tuple(leaf.names[0] for leaf in lost if leaf.names)
    source = graph.nodes[stops[0]].script_line or graph.nodes[stops[0]].source
    x = "x"
    yield Diagnosis(
        f"the gradient of {plural(len(lost), 'parameter')} is always zero: {listed(names, 3) or 'the leaves'} "
        f"{verb(lost, 'reaches', 'reach')} the loss only through {listed(dict.fromkeys(graph.nodes[i].op for i in stops), 2)}",
        names,
        line(source),
        f"{title(graph, stops[0])} is flat: its derivative is zero wherever it exists, and every way from "
        f"{verb(lost, 'this parameter', 'these parameters')} to the loss leads through it ({code(source)})",
        f"Let the gradient pass around it: {x} + ({x}.round() - {x}).detach() has the rounded value and the gradient of {x}. Or "
        "use a smooth function there.",
        tuple(stops),
        source=source,
    )


def reached(graph: Graph, flat: set[int]) -> tuple[set[int], list[int]]:
    """The nodes that a gradient other than zero may reach, and the flat ones where it ends."""
    seen = {root.node for root in graph.roots if root.node is not None}
    waiting, stops = list(seen), []
    while waiting:
        node = waiting.pop()
        if node in flat:
            stops.append(node)
            continue
        for edge in graph.inputs(node):
            if edge.producer not in seen:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return seen, stops
