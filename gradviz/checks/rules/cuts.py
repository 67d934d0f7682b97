"""The checks on what takes part in a loss without a gradient: terms, and states of
recurrent cells, that were cut off.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from gradviz.checks.call import BackwardCall
from gradviz.checks.ops import PRODUCTS, RESHAPES, behind, kind, made, spread, users
from gradviz.checks.registry import Diagnoses, Diagnosis, Row, check
from gradviz.checks.run import Kind
from gradviz.checks.telling.mending import all_cut_words, mend_all, to_change
from gradviz.checks.words import (
    all_names,
    code,
    first_names,
    line,
    listed,
    made_at,
    nodes_of,
)
from gradviz.graph import Graph, Leaf, Node, SourceLine
from gradviz.graph.origins import own_line
from gradviz.source.cut import Cut
from gradviz.source.search import matching
from gradviz.source.statements import loops_around, written_at
from gradviz.wording import one_line, plural

SUMS = ("Add", "Sub", "Rsub")
_SCALED = ("Mul", "Div", "Neg")
_SAME = (*SUMS, "Sum", "Mean", *RESHAPES, "Select")
_ONE = (), (1,)  # shapes of a single number
_TERM = Row(
    "{term} has no graph: this term of the loss trains nothing",
    "it is added in {sum}; {cuts}",
    "{mend}",
)
_COPY = Row(
    "{term} is a new leaf, a copy without the graph: what is computed from it does not train {names}",
    "{cuts}; backward() fills {term}.grad, and nothing reads that",
    "{mend}",
)

_DERIVATIVE = Row(
    "{term} has no graph: through it, {names} get no gradient",
    "{cuts}; it is added to what has a graph",
    "{mend}",
)
_SAMPLE = Row(
    "{term} is drawn with sample(), without a graph: what is computed from it does not train {names}",
    "{cuts}; the file takes log_prob() nowhere, by which a sample can train",
    "{mend}",
)
_JUDGED = _SAMPLE._replace(
    why="{cuts}; what judges it is not updated in this step, and has no gradient to pass on"
)


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
    `create_graph=True`. A term that is computed from a detached copy with
    `requires_grad_()` trains that copy alone, which nobody updates. A sample that was drawn
    with `sample()` passes no gradient to what it was drawn from.

    How it is found: the line that adds the term is followed backwards, as it is written,
    to what takes a tensor with a graph and gives one without, as `detach`, `item`,
    `argmax`, `sample` and a block under `torch.no_grad()` do. Only for a loss that is a
    single number, and for `check` on a script.

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
    graph = context.graph
    sums = _sums(graph, bool(_trained(context)))
    # y.detach() + x - x.detach(): the value of one, with the gradient of the other
    subtracted = [node for node in sums if "ub" in graph.ops[node]]
    replaces = any(_cuts_into(context, node) for node in subtracted)
    elsewhere = _lines_with_graph(context)
    for node in sums:
        record, source = graph.nodes[node], made_at(graph, node)
        # which terms of a library's sum have a graph is its own choice
        library = record.source is not None and record.source.package
        if not record.none_inputs or source is None or library:
            continue
        if source in elsewhere:
            continue

        cuts = _cuts_into(context, node)
        if replaces and all(cut.kind == "detach" for cut in cuts):
            continue

        wrong = _wrong(context, cuts)
        if wrong:
            name = one_line(wrong[0].term)
            told = _told(context, _TERM, [name], wrong, node, code(source))
            places = dict.fromkeys(line(cut.source) for cut in wrong)
            yield told._replace(where=listed(places))

    yield from _copies(context)
    yield from _samples(context)
    yield from _derivatives(context)


def _lines_with_graph(context: BackwardCall) -> set[SourceLine | None]:
    """The lines that in one of the calls add up nothing but what has a graph: a memory
    may be empty in the first one.
    """
    complete = set[SourceLine | None]()
    for call in context.run.read:
        graph, sums = call.graph, _sums(call.graph, bool(_trained(call)))
        lines = {node: made_at(graph, node) for node in sums}
        lacking = {lines[node] for node in sums if graph.nodes[node].none_inputs}
        complete |= {*lines.values()} - lacking
    return complete


def _told(
    context: BackwardCall,
    row: Row,
    names: Iterable[str],
    cuts: Sequence[Cut],
    node: int,
    sum: str = "",
) -> Diagnosis:
    """What is said of cuts that enter the graph at a node, and what to do about them."""
    first, trained = cuts[0], first_names(context.parameters)
    unused = [context.answers[name] for name in trained if name in context.answers]
    # what it cuts off is told of there
    is_cause = any(answer.cut == first for answer in unused)
    return row.filled(
        tuple(names),
        to_change(first),
        term=one_line(first.term),
        sum=sum,
        cuts=all_cut_words(cuts),
        mend=mend_all(cuts),
        nodes=(node,),
        part=first.part,
        follows=("unused-parameter",) if is_cause else (),
    )


def _samples(context: BackwardCall) -> Diagnoses:
    """What was drawn from something trained, and goes into the graph for its value."""
    trained = _trained(context)
    entered: dict[Cut, list[int]] = {}
    for node, cuts in context.entered.items():
        for cut in cuts:
            entered.setdefault(cut, []).append(node)
    drawn = [cut for cut in entered if cut.operation == "sample"]
    judges = _judges(context) if drawn else set[int]()
    for cut in drawn:
        names, term = sorted(cut.behind & trained), re.escape(cut.term)
        # the sample itself, and not what came of it, as rewards do
        itself = cut.part == cut.term or re.match(f"{term} =", written_at(cut.source))
        if not names or not itself:
            continue
        if not judges.isdisjoint(entered[cut]):
            yield _told(context, _JUDGED, names, [cut], entered[cut][-1])
        # elsewhere, it may have another name
        elif not any(matching(context.body.file, r"log_prob\(")):
            yield _told(context, _SAMPLE, names, [cut], entered[cut][-1])


def _judges(context: BackwardCall) -> set[int]:
    """The nodes of networks that the steps behind this call leave as they are, and whose
    results weigh nothing: only a gradient of their inputs could train.
    """
    graph, run, updated = context.graph, context.run, set[int]()
    for event in run.events(Kind.STEP):
        if event.call == context.call:
            updated |= event.tensors or set()
    moved, onward = {*run.named(updated)}, partial(users, graph)
    own = [leaf for leaf in graph.leaves if leaf.names and updated]
    changing = [leaf.node for leaf in own if not moved.isdisjoint(leaf.names)]
    products = [node for node in graph.order if kind(graph, node) == "Mul"]
    weights = [node for node in products if len(graph.inputs(node)) == 2]
    nodes = set(spread(nodes_of(own), onward))
    return nodes.difference(spread(changing, onward), behind(graph, weights))


def _derivatives(context: BackwardCall) -> Diagnoses:
    """A derivative without a graph in a residual, as of a differential equation."""
    graph, trained = context.graph, _trained(context)
    products = [node for node in graph.order if kind(graph, node) in PRODUCTS]
    # a changed input, or weight, goes through the model again
    into_model = set(behind(graph, products)) if context.entered else set[int]()
    for node, cuts in context.entered.items():
        wrong = [cut for cut in cuts if cut.kind == "grad"][:1]
        if not wrong or kind(graph, node) not in SUMS or node in into_model:
            continue
        # of another model it is a target
        beside = behind(graph, [node]) & graph.leaf_of.keys()
        same = trained & {*all_names(graph.leaf_of[leaf] for leaf in beside)}
        names = sorted(same & wrong[0].behind)
        if names:
            yield _told(context, _DERIVATIVE, names, wrong, node)


def _copies(context: BackwardCall) -> Diagnoses:
    """Leaves of this step that were made of something with a graph, and that nothing
    asks for a gradient.
    """
    run, file = context.run, context.body.file
    rows = {
        row.node: key for key, row in run.leaves.items() if row.call == context.call
    }
    known, trained = run.holding | run.differentiated_by, _trained(context)
    for leaf in context.graph.leaves if run.stepped else ():
        asked = leaf.node in context.asked or rows.get(leaf.node) in known
        cuts = [] if asked or leaf.kind != "input" else _cuts_of(context, leaf)
        for cut in [cut for cut in cuts if cut.behind & trained][:1]:
            name = re.escape(cut.term)
            read = rf"\b{name}\.grad\b|\bgrad\(.*\b{name}\b"
            if not any(matching(file, read)):
                yield _told(context, _COPY, sorted(cut.behind), [cut], leaf.node)


def _cuts_of(context: BackwardCall, leaf: Leaf) -> list[Cut]:
    """What was cut off and entered the graph as a leaf."""
    graph, found = context.graph, list[Cut]()
    names = {name.rpartition(".")[2] for name in leaf.names}
    for user in users(graph, leaf.node):
        for cut in context.entered.get(user, ()):
            alone = not (names or graph.nodes[user].none_inputs)
            if alone or cut.term.rpartition(".")[2] in names:
                found.append(cut)
    return found


def _cuts_into(context: BackwardCall, node: int) -> Sequence[Cut]:
    """What was cut off and entered a sum."""
    record, cuts = context.graph.nodes[node], context.entered.get(node, ())
    if record.none_inputs != record.numbers:
        return cuts
    # the 0 that a sum begins with is no term; what `.item()` gives is
    return [cut for cut in cuts if cut.kind in ("number", "numpy")]


def _wrong(context: BackwardCall, cuts: Sequence[Cut]) -> list[Cut]:
    """Those to mend. A cut is right where nothing that it drops is trained by an
    optimizer of this loss; a gradient without a graph is always lost.
    """
    trained, wrong = _trained(context), list[Cut]()
    for cut in cuts:
        dropped = cut.behind
        if cut.kind == "grad" or not (trained and dropped) or trained & dropped:
            wrong.append(cut)
    # of what is known to train, where there is such a cut: others drop data
    return [cut for cut in wrong if cut.behind & trained] or wrong


def _trained(context: BackwardCall) -> set[str]:
    """What the optimizers of this loss hold."""
    reached, trained = {*all_names(context.graph.leaves)}, set[str]()
    for optimizer in context.at_work:
        held = {*all_names(optimizer.tensors)}
        trained |= held if held & reached else set()
    return trained


def _sums(graph: Graph, trains: bool) -> list[int]:
    """The nodes that add up the single number that a loss is, from the root down; with
    `trains` also those that add up one number for each sample.
    """
    roots = set[int]()
    for root in graph.roots:
        if root.node is not None and root.tensor.shape in _ONE:
            roots.add(root.node)

    def parts(node: int) -> Iterator[int]:
        op, edges = kind(graph, node), graph.inputs(node)
        # times a constant, it is still a term; times another graph, it is none
        if op in _SAME or (op in _SCALED and len(edges) == 1):
            for edge in edges:
                part = made(graph, edge.producer, edge.output)
                if part is None or part.shape is None:
                    continue
                many = trains and len(part.shape) == 1
                # what is subtracted of each sample may be a baseline
                if part.shape in _ONE or (many and kind(graph, edge.producer) != "Sub"):
                    yield edge.producer

    nodes = spread(roots if len(roots) == 1 else (), parts)
    return [node for node in nodes if kind(graph, node) in SUMS]


# -- cut-state ---------------------------------------------------------------------------

_CELL = re.compile(r"(LSTM|GRU|RNN)Cell$")
_STEPS = 3
"""Calls of a cell in one step, from which on it is to remember."""
_ALONE = Row(
    "{name} learns nothing to remember: its state is cut off in each step",
    "it ran {times} before this backward(), and each time {cuts}: no gradient leads from one step to the one before",
    "Detach the state once, in front of the loop over the steps; in {place}, give {name} the state itself.",
)


@check("cut-state", "warning", "the state of a recurrent cell is cut off in each step")
def cut_state(context: BackwardCall) -> Diagnoses:
    """A recurrent cell runs step by step, and its state is detached in each: no gradient
    leads from one step to the one before.

    The cell then learns what to do with a single step, and nothing to remember. Truncated
    backpropagation detaches the state between two `backward()` calls, as in front of the
    loop over the steps, and not in it.

    How it is found: a line in the loop that calls an `nn.RNNCell`, `nn.GRUCell` or
    `nn.LSTMCell` cuts off the state that it is given and that it computed, in all of its
    calls in the graph, of three or more before this backward call.

    What to do: detach the state in front of the loop.

    When to ignore it: when a cell is meant to be trained step by step.

    ```python
    import torch

    cell, h, loss = torch.nn.GRUCell(3, 4), torch.zeros(2, 4), 0
    for x in torch.randn(5, 2, 3):
        h = cell(x, h.detach())
        loss = loss + h.square().mean()
    loss.backward()
    ```
    """
    graph, whole = context.graph, dict[str, set[int]]()
    cut_off = defaultdict[tuple[str, Cut], set[int]](set)
    for node in graph.nodes:
        scope = node.scope
        cell = graph.scopes[scope] if scope is not None else None
        if cell is None or scope is None or not _CELL.search(cell.type):
            continue
        whole.setdefault(cell.path, set()).add(scope)
        for cut in context.entered.get(node.id, ()):
            is_own = any(cell.path == name.rpartition(".")[0] for name in cut.behind)
            if is_own and cut.kind in ("detach", "data") and _is_in_loop(node, cut):
                cut_off[cell.path, cut].add(scope)

    for (path, cut), scopes in cut_off.items():
        calls = max(graph.scopes[scope].call for scope in scopes)
        if scopes == whole[path] and calls >= _STEPS:
            yield _ALONE.filled(
                (path,),
                cut.source,
                name=path,
                times=plural(calls, "time"),
                cuts=all_cut_words([cut._replace(times=1)]),
                place=line(cut.source),
                part=cut.part,
            )


def _is_in_loop(node: Node, cut: Cut) -> bool:
    """Whether a loop is around a cut and the line that made a node, and none is around
    one of them alone.
    """
    source = own_line(node)
    if source is None or source.file != cut.source.file:
        return False
    loops = [loops_around(one.file, one.line) for one in (source, cut.source)]
    return bool(loops[0]) and loops[0] == loops[1]
