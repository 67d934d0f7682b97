"""Why a tensor gets a gradient, or none: what it is, who holds it, which path leads to
it, and which line cuts that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from gradviz.armour.isolation import isolated
from gradviz.features import hook
from gradviz.graph import Graph, SourceLine, TensorInfo
from gradviz.graph.kinds import why_zero
from gradviz.graph.ready_queue import engine_order
from gradviz.graph.walks import behind, makers
from gradviz.report import labels
from gradviz.report.results import displayed
from gradviz.variables.objects import members
from gradviz.variables.scanner import Namespace, scan
from gradviz.walker.names import below, outermost_modules
from gradviz.walker.tensors import grad_fn_of, tensor_info
from gradviz.walker.walk import Walked, capture
from gradviz.wording import count_text, number, one_line, plural, tensor_line

if TYPE_CHECKING:
    from gradviz.report.rich_parts import RenderableType
    from gradviz.run.outputs import LiveOutputs

SHOWN = 9  # steps of a path in the table


class WhyStep(NamedTuple):
    """One function on the way from the output to the tensor."""

    name: str
    op: str
    source: SourceLine | None


@displayed("gradviz.explanation:why_table")
class Why(NamedTuple):
    """Plain data. `grad` says in words what `.grad` holds and which step of backward
    fills it.

    `step` counts from 1, of `steps`; None where no gradient reaches the tensor. `path`
    is a shortest one, the output first. `reason` is why no gradient does, or one that is
    exactly 0, and `cause` the line that this is about.
    """

    name: str
    outputs: tuple[str, ...]
    names: tuple[str, ...]
    tensor: TensorInfo
    is_leaf: bool
    requires_grad: bool
    grad: str
    step: int | None
    steps: int
    reason: str
    cause: SourceLine | None
    module: str
    optimizers: tuple[str, ...]
    path: tuple[WhyStep, ...]

    def __repr__(self) -> str:
        return f"<Why: {one_line(self.name)}, .grad {self.grad}>"


def opened(live: LiveOutputs) -> tuple[Graph, Walked]:
    """The graph behind outputs without what is saved in it, and the live walk."""
    walked = capture(
        live.outputs,
        variables=live.variables,
        title=live.title,
        attribution=live.attribution,
        saved=False,
        need_graph=False,
    )
    return walked.graph.with_root_names(live.names), walked


def optimizers(variables: Sequence[Namespace]) -> list[tuple[str, Any]]:
    """Each optimizer that variables lead to, with its first name."""
    found: dict[int, tuple[str, Any]] = {}
    for named in scan(variables):
        if named.kind == "optimizer":
            found.setdefault(id(named.value), (named.name, named.value))
    return list(found.values())


def optimized(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that an optimizer holds."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def explain(live: LiveOutputs, tensor: torch.Tensor, name: str = "") -> Why:
    """What can be said of `tensor`, which the caller calls `name`, before the backward
    of these outputs runs. Without a name it is that of a variable or parameter.
    """
    graph, walked = opened(live)
    names = walked.names.leaf(tensor)
    name = name or next(iter(names), "the tensor")

    with isolated():
        made_by = grad_fn_of(tensor, asked_for=True)
        leaves = {id(leaf): node for node, leaf in walked.variables.items()}
        if made_by is None:
            node = leaves.get(id(tensor))
        else:
            node = walked.position_of.get(made_by)
        order = engine_order(graph)
        step = order.index(node) + 1 if node in order else None
        reason, cause = _answer(live, walked, tensor, name, node if step else None)
        path: tuple[WhyStep, ...] = ()
        if step is not None and node is not None:
            path = tuple(_path(graph, node))

        return Why(
            name=name,
            outputs=tuple(root.name for root in graph.roots),
            names=names,
            tensor=tensor_info(tensor),
            is_leaf=made_by is None,
            requires_grad=tensor.requires_grad,
            grad=_grad(tensor, name, step, len(order), live),
            step=step,
            steps=len(order),
            reason=reason,
            cause=cause,
            module=_module(live.variables, tensor),
            optimizers=tuple(_groups(live.variables, tensor)),
            path=path,
        )


def _answer(
    live: LiveOutputs, walked: Walked, tensor: torch.Tensor, name: str, node: int | None
) -> tuple[str, SourceLine | None]:
    """Why no gradient reaches it, or one of 0 where backward comes to its node; and the
    line. As far as there is what finds that out.
    """
    if node is not None:
        return why_zero(walked.graph, node)
    answers = hook("gradviz.cuts.answers:Answers")
    if answers is None:
        return "", None
    answer = answers(live, walked).answer(tensor, name)
    return answer.words, answer.source


def all_reasons(calls: Iterable[tuple[Sequence[str], str]]) -> str:
    """The reasons of several backward calls, each with the outputs that it is about where
    they differ.
    """
    by_reason: dict[str, list[str]] = {}
    for outputs, reason in calls:
        by_reason.setdefault(reason, []).extend(outputs)
    if len(by_reason) == 1:
        return next(iter(by_reason))
    pairs = by_reason.items()
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in pairs)


def _module(variables: Sequence[Namespace], tensor: torch.Tensor) -> str:
    """The module that registered a tensor."""
    for path, module in below(outermost_modules(None, variables)):
        for table in ("_parameters", "_buffers"):
            if any(held is tensor for _, held in members(module, table)):
                return f"{path or 'the model'} ({type(module).__name__})"
    return ""


def _grad(
    tensor: torch.Tensor, name: str, step: int | None, steps: int, live: LiveOutputs
) -> str:
    moment = f"at step {count_text(step or 0)} of {count_text(steps)}"
    if not tensor.is_leaf and not tensor.retains_grad:
        if step is not None:
            kept = f"; {name}.retain_grad() before backward() would fill it {moment}"
        else:
            kept = ""
        return f"stays empty, because it is not a leaf{kept}"

    before = ("empty" if tensor.grad is None else "filled") + (
        " now" if live.call is None else " before this call"
    )
    if step is None:
        return f"{before}, and stays so: no gradient reaches it"
    # the call writes no .grad at all
    if not live.accumulates:
        return f"{before}, and stays so: torch.autograd.grad() returns gradients"

    return f"{before}, {'filled' if tensor.grad is None else 'added to'} {moment}"


def _groups(variables: Sequence[Namespace], tensor: torch.Tensor) -> Iterator[str]:
    """The parameter groups of optimizers that hold a tensor."""
    for name, optimizer in optimizers(variables):
        for i, group in enumerate(optimizer.param_groups):
            if any(parameter is tensor for parameter in group["params"]):
                rate = group.get("lr")
                rate_text = f", lr {number(rate)}" if isinstance(rate, float) else ""
                yield f"{one_line(name)} ({type(optimizer).__name__}), parameter group {i}{rate_text}"


def _path(graph: Graph, node: int) -> Iterator[WhyStep]:
    """The shortest way from an output to a node of its graph."""
    # the nearest come first, so the first way that reaches a node is a shortest one
    towards: dict[int, int] = {}
    for consumer in behind(graph, graph.roots_of):
        for producer in makers(graph, consumer):
            towards.setdefault(producer, consumer)

    nodes = [node]
    while nodes[-1] not in graph.roots_of:
        nodes.append(towards[nodes[-1]])

    for current in reversed(nodes):
        record = graph.nodes[current]
        leaf = graph.leaf_of.get(current)
        title = labels.op_title(graph, record, names="variable")
        name = labels.leaf_title(leaf) if leaf is not None else title.name
        yield WhyStep(
            name,
            "leaf" if leaf is not None else title.op,
            record.script_line or record.source,
        )


# -- as a table ------------------------------------------------------------------------


def why_table(why: Why) -> RenderableType:
    """One screen."""
    from gradviz.report.rich_parts import Group, Text
    from gradviz.report.table import Column, FittedTable

    facts = [
        [Text(word, "bold"), Text(one_line(text))] for word, text in _facts(why) if text
    ]
    steps = [list(map(Text, map(one_line, row))) for row in _steps(why)]
    columns = [Column("path", "name"), Column("op", "word", 2)]
    columns.append(Column("line", "code", 1))
    title = Text(f"{one_line(why.name)}  {tensor_line(why.tensor)}", "bold")
    said = FittedTable([Column("", "word"), Column("", "text")], facts, header=False)
    if not steps:
        return Group(title, Text(), said)
    return Group(title, Text(), said, Text(), FittedTable(columns, steps))


def _facts(why: Why) -> Iterator[tuple[str, str]]:
    yield ".grad", why.grad
    yield "because", why.reason
    if why.cause is not None:
        yield "line", f"{labels.source_text(why.cause)}  {why.cause.text.strip()}"

    yield (
        "leaf",
        ("yes" if why.is_leaf else "no, computed")
        + f"; requires_grad={why.requires_grad}",
    )
    yield (
        "also named",
        labels.names_text(name for name in why.names if name != why.name),
    )
    yield "held by", why.module
    trained = why.is_leaf and why.requires_grad

    for optimizer in why.optimizers or (
        ("none that a variable holds",) if trained else ()
    ):
        yield "optimizer", optimizer

    outputs = ", ".join(why.outputs[:3])
    if why.path:
        yield "path", f"{plural(len(why.path) - 1, 'step')} from {outputs}"
    else:
        yield "path", f"none from {outputs}"


def _steps(why: Why) -> Iterator[tuple[str, str, str]]:
    rows = [
        (step.name, step.op, labels.source_text(step.source) if step.source else "")
        for step in why.path
    ]
    cut = len(rows) - SHOWN
    # both ends of a long path: the output, and the tensor that was asked about
    yield from rows if cut <= 0 else rows[: SHOWN // 2]
    if cut > 0:
        yield (labels.more(cut), "", "")
        yield from rows[SHOWN // 2 + cut :]
