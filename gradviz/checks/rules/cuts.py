"""Checks on what takes part in a loss without a gradient: terms that were cut off, and
operations whose derivative is zero.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from gradviz.checks.call import BackwardCall
from gradviz.checks.flow import from_outputs
from gradviz.checks.ops import RESHAPES, kind, made, spread
from gradviz.checks.registry import Diagnoses, Diagnosis, check
from gradviz.checks.rules.mending import all_cut_words, expression, mend_all, uncut
from gradviz.checks.words import (
    COMPARISONS,
    all_names,
    code,
    first_names,
    line,
    listed,
    made_at,
    title,
    verb,
)
from gradviz.graph import Graph, Leaf, Node, SourceLine
from gradviz.source.code_line import parsed
from gradviz.source.cut import Cut
from gradviz.source.feeding import feeding
from gradviz.source.search import lines_behind
from gradviz.wording import one_line, plural

_SUMS, _SCALED, _REDUCED, _JOINED = (
    ("Add", "Sub", "Rsub"),
    ("Mul", "Div", "Neg"),
    ("Sum", "Mean"),
    ("Stack", "Cat"),
)
_SAME, _TURNED = RESHAPES | {"Select"}, ("T", "Transpose", "ToCopy")
_FLAT = ("Round", "Floor", "Ceil", "Trunc", "Sign", "Heaviside", "FloorDivide")


@check(
    "constant-term",
    "warning",
    "a term of the loss has no graph, so it has no effect on the training",
)
def constant_term(context: BackwardCall) -> Diagnoses:
    """A term is added to the loss that was computed from something with a graph, and
    has none itself.

    Backward passes it by: it changes the number that is printed, and no gradient.
    Mostly it was computed with argmax or a comparison, under `torch.no_grad()` in a
    helper, with NumPy, or added as `.item()`; or it is a gradient penalty without
    `create_graph=True`.

    How it is found: functions that take a tensor with a graph and give one without, as
    `detach`, `item`, `argmax` and `sample` do, are noted while the script runs; the
    code says which of their results go into the sum. What is computed with recording
    off is not noted. Only for a loss that is a single number, and for `check` on a
    script.

    What to do: mend the line that is named, so that the term keeps its graph; or leave
    the term out.

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
    for node, cuts, term in _cut_terms(context):
        source, blamed = made_at(context.graph, node), _blamed(context, cuts)
        if blamed:
            yield Diagnosis(
                f"{one_line(term) or 'a term of the loss'} has no graph: this term of the loss trains nothing",
                (one_line(term),) if term else (),
                f"it is added in {code(source)}; {'; '.join(all_cut_words(blamed))}",
                mend_all(blamed),
                (node,),
                where=listed(dict.fromkeys(line(cut.source) for cut in blamed)),
                source=blamed[0].source,
                part=expression(blamed[0]),
                edit=uncut(blamed),
            )


def _blamed(
    context: BackwardCall,
    cuts: Sequence[Cut],
) -> tuple[Cut, ...]:
    """Those to mend: a cut is right where nothing that it drops is trained by an
    optimizer of this loss.

    A gradient without a graph is always lost; of the others, what this loss does not
    reach otherwise.
    """
    reached = {*all_names(context.graph.leaves)}
    held = (set(all_names(one.tensors)) for one in context.at_work)
    trained = set[str]().union(*(names for names in held if names & reached))
    right = [
        cut for cut in cuts if trained and _lost(cut) and trained.isdisjoint(_lost(cut))
    ]
    wrong = [cut for cut in cuts if cut.kind == "grad" or cut not in right]
    return tuple(
        cut for cut in wrong if cut.kind == "grad" or _lost(cut) - reached
    ) or tuple(wrong)


def _lost(cut: Cut) -> frozenset[str]:
    return cut.behind.union(cut.leaf)


def _cut_terms(
    context: BackwardCall,
) -> Iterator[tuple[int, tuple[Cut, ...], str]]:
    """The sums that a loss consists of and that take in something cut off: which cuts,
    and what the code adds there.
    """
    graph = context.graph
    roots = {root.node for root in graph.roots if root.tensor.shape in _ONE} - {None}
    root = roots.pop() if len(roots) == 1 else None
    if root is None:
        return

    sums, subtracts = _sums(graph, root)
    for node in sums:
        source = made_at(graph, node)
        live = {edge.position for edge in graph.inputs(node)}
        term = _term(live, source, "ub" in graph.nodes[node].op)
        cuts = _of_term(context.entered.get(node, ()), source, term)
        cuts = cuts or _numbers(context, source, "" if subtracts else term)
        # x + (y - x).detach(): a value without gradient
        meant = subtracts and all(cut.kind == "detach" for cut in cuts)
        plain = graph.nodes[node].none_inputs and not _is_of_library(graph.nodes[node])
        if cuts and plain and not meant:
            yield node, cuts, term


def _of_term(
    cuts: Sequence[Cut], source: SourceLine | None, term: str
) -> tuple[Cut, ...]:
    """Those of the term that is added in a line: in lines that it was computed in, or
    spelled in it.
    """
    if source is None or not term:
        return ()
    behind = feeding((source.file, source.line), (), term)
    return tuple(
        cut
        for cut in cuts
        if any((one.file, one.line) in behind for one in cut.via) or _spells(term, cut)
    )


def _spells(term: str, cut: Cut) -> bool:
    """Whether code does what cuts, or calls the function that does."""
    inner = [cut.operation.strip("_"), *(one.function for one in cut.via[:-1])]
    compares = cut.operation in COMPARISONS and any(mark in term for mark in "<>=")
    return compares or any(
        re.search(rf"\b{re.escape(name)}\b", term) for name in inner if name
    )


def _is_of_library(node: Node) -> bool:
    """Whether a library's own line made it: which terms of its sum have a graph is its
    own choice.
    """
    return node.source is not None and bool(node.source.package)


def updates_below(
    graph: Graph,
    node: int,
) -> tuple[int, Leaf | None]:
    """How many sums in a row, each with something that has no graph, lead from a node
    to a leaf, and to which.
    """
    count = 0
    while kind(graph, node) in _SUMS and graph.nodes[node].none_inputs:
        if len(graph.inputs(node)) != 1:
            return 0, None
        count, node = count + 1, graph.inputs(node)[0].producer
    return count, graph.leaf_of.get(node)


def _numbers(
    context: BackwardCall, source: SourceLine | None, term: str
) -> tuple[Cut, ...]:
    """The Python numbers made in the line of a sum, or in lines that the term which is
    added was computed in.
    """
    if source is None or not context.numbers:
        return ()

    here = tuple(cut for cut in context.numbers if cut.source == source)
    if term and not here:
        behind = {before.line for before in lines_behind(source, term)}
    else:
        behind = set()

    return here or tuple(
        cut
        for cut in context.numbers
        if cut.source.file == source.file and cut.source.line in behind
    )


def _sums(
    graph: Graph,
    root: int,
) -> tuple[list[int], bool]:
    """The nodes that add up a single number, from the root down, and whether one of
    them subtracts.
    """

    def parts(node: int) -> Iterator[int]:
        op, edges = kind(graph, node), graph.inputs(node)
        if op in (*_SUMS, *_JOINED, *_REDUCED, *_SAME) or (
            op in _SCALED and len(edges) == 1
        ):
            for edge in edges:
                given = made(graph, edge.producer, edge.output)
                number = given is not None and given.shape in _ONE
                if number or (op in _REDUCED and kind(graph, edge.producer) in _JOINED):
                    yield edge.producer

    terms = [
        node
        for node in spread([root], parts)
        if kind(graph, node) in (*_SUMS, *_JOINED)
    ]
    return terms, any("ub" in graph.nodes[node].op for node in terms)


_ONE = (), (1,)  # shapes of a single number


def _term(
    live: set[int],
    source: SourceLine | None,
    subtracts: bool,
) -> str:
    """What the code adds, where the line shows it: the side of the sum without a graph.
    `live` are those that have one.
    """
    statement = next(iter(parsed(source)), None)
    value = getattr(statement, "value", None)
    if isinstance(statement, ast.AugAssign):
        return ast.unparse(statement.value)

    def sides(part: ast.BinOp) -> list[ast.BinOp]:
        inner = (part.left, part.right) if isinstance(part.op, _ADDS) else ()
        return [side for side in inner if isinstance(side, ast.BinOp)]

    every = spread(
        [value] if isinstance(value, ast.BinOp) else [],
        sides,
    )
    sums = [part for part in every if isinstance(part.op, _ADDS[subtracts])]
    if len(sums) != 1 or len(live) != 1:
        return ""
    return ast.unparse(sums[0].right if 0 in live else sums[0].left)


_ADDS = ast.Add, ast.Sub


@check(
    "zero-derivative",
    "warning",
    "parameters reach the loss only through operations whose derivative is zero",
)
def zero_derivative(context: BackwardCall) -> Diagnoses:
    """Every way from a parameter to the loss leads through rounding or the like: its
    gradient is zero, always.

    `round`, `floor`, `ceil`, `trunc` and `sign` are flat: they have a graph, nothing
    fails, and what comes back is zero.

    How it is found: in the graph alone, without reading a number.

    What to do: pass the gradient around the operation, `x + (x.round() - x).detach()`,
    or use a smooth function.

    When to ignore it: when these parameters are not to be trained.

    ```python
    import torch

    model = torch.nn.Linear(3, 1)
    loss = (torch.round(model(torch.ones(4, 3))) - 1).abs().mean()
    loss.backward()
    ```
    """
    graph = context.graph
    flat = {node for node in range(len(graph.nodes)) if kind(graph, node) in _FLAT}
    if not flat or context.guessed:
        return

    alive = from_outputs(graph, flat)
    stops = [node for node in alive if node in flat]
    lost = [
        leaf
        for leaf in graph.leaves
        if leaf.node not in alive and leaf.kind == "parameter"
    ]
    if not lost:
        return

    names = first_names(lost)
    source = made_at(graph, stops[0])
    yield Diagnosis(
        f"the gradient of {plural(len(lost), 'parameter')} is always zero: {listed(names, 3) or 'the leaves'} "
        f"{verb(lost, 'reaches', 'reach')} the loss only through {listed(dict.fromkeys(graph.nodes[i].op for i in stops), 2)}",
        names,
        f"{title(graph, stops[0])} is flat: its derivative is zero wherever it exists, and every way from "
        f"{verb(lost, 'this parameter', 'these parameters')} to the loss leads through it ({code(source)})",
        "Let the gradient pass around it: x + (x.round() - x).detach() has the rounded value and the gradient of x. Or "
        "use a smooth function there.",
        tuple(stops),
        source=source,
    )
