"""The Python functions that look at the caller's variables for names."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Literal

import torch

from gradviz import errors
from gradviz.armour.isolation import isolated
from gradviz.errors import NoGraphError, NotATensorError
from gradviz.features import hook, load
from gradviz.graph import Graph
from gradviz.graph.given import graph_of, refuse_graph
from gradviz.variables.scanner import Namespace, callers_variables, name_of
from gradviz.walker.tensors import grad_fn_of
from gradviz.walker.walk import capture

if TYPE_CHECKING:
    from gradviz.explanation import Why
    from gradviz.gradients.flow import GradientFlow
    from gradviz.gradients.paths import Paths
    from gradviz.recording.record import Recording
    from gradviz.report.rich_parts import RenderableType


def walk(
    outputs: object,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    *,
    saved: bool = True,
) -> Graph:
    """The autograd graph behind `outputs`, as a detached `Graph`.

    Operations are grouped by the module call that they seem to belong to, judged by who
    owns their parameters and by the order in which they ran (`gradviz.inference`).
    Which module was called, and from which line, only `gradviz.record` knows.

    Parameters
    ----------
    outputs
        a tensor, or any nesting of dict, list, tuple, namedtuple, dataclass or
        model output. A `grad_fn` or a `torch.autograd.graph.GradientEdge` stands
        for the tensor that it made.
    model
        names its parameters and buffers.
    params
        tensor by name, for what `model` does not name. What neither names is
        looked up in the variables of the function that calls this, and of those
        around it.
    saved
        whether to read what the nodes saved for backward. Never runs a hook,
        recomputes, or keeps memory.

    Raises
    ------
    NoGraphError
        none of the outputs has a graph; the message says why.
    NotATensorError
        there is no tensor in `outputs`.

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.Node

    Examples
    --------
    >>> import torch, gradviz
    >>> w = torch.ones(1, requires_grad=True)
    >>> y = (w + 1) * w
    >>> [node.op for node in gradviz.walk(y).nodes]
    ['MulBackward0', 'AddBackward0', 'AccumulateGrad']
    """
    return _walked(outputs, callers_variables(sys._getframe(1)), model, params, saved)


def _walked(
    outputs: object,
    variables: Sequence[Namespace],
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    saved: bool = True,
) -> Graph:
    attribution = hook("gradviz.inference.ownership:OwnershipAttribution")
    owned = attribution() if attribution is not None else None
    graph = capture(
        outputs,
        model=model,
        params=params,
        variables=variables,
        saved=saved,
        attribution=owned,
    ).graph
    if owned is None:
        return graph

    infer_scopes = load("gradviz.inference:infer_scopes")
    try:
        with isolated():
            with_scopes: Graph = infer_scopes(graph, owned.ownership)
    except Exception as error:  # modules are a guess, and the graph is none
        note = f"modules could not be inferred: {errors.bug_told(error)}"
        return replace(graph, notes=(*graph.notes, note))
    return with_scopes


def graph_behind(outputs: object, frame: FrameType) -> Graph:
    """The graph of tensors that the function of this frame has given where a Graph may
    be: with modules and lines, while something records.
    """
    from gradviz.recording.record import open_recording

    variables, recording = callers_variables(frame), open_recording()
    if recording is None:
        return _walked(outputs, variables)
    attribution = recording.attribution(None, variables)
    return capture(outputs, variables=variables, attribution=attribution).graph


def _checked(
    function: str,
    outputs: object,
    tensor: object,
    variables: Sequence[Namespace],
    model: torch.nn.Module | None,
    params: Mapping[str, torch.Tensor] | None = None,
) -> torch.Tensor:
    """The tensor, which may be given by name, also as `model` and `params` call it.
    Raises NotATensorError for what is none, and NoGraphError where the two are swapped.
    """
    from gradviz.run.outputs import tensor_called

    refuse_graph(outputs, f"{function}(loss, w)")
    if isinstance(tensor, str):
        known = {**dict(model.named_parameters() if model else ()), **(params or {})}
        tensor = (
            known[tensor]
            if tensor in known
            else tensor_called(tensor, variables, "this program")
        )
    if not isinstance(tensor, torch.Tensor):
        kind = type(tensor).__name__
        raise NotATensorError(f"{function} needs a tensor or its name, not a {kind}")

    is_leaf = isinstance(outputs, torch.Tensor) and grad_fn_of(outputs) is None
    if is_leaf and grad_fn_of(tensor) is not None:
        names = [name_of(one, variables) or "..." for one in (tensor, outputs)]
        raise NoGraphError(
            f"the output comes first: gradviz.{function}({', '.join(names)})"
        )
    return tensor


def flow(
    outputs: object,
    *,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    recording: Recording | None = None,
    run_custom: bool = False,
) -> GradientFlow:
    """How large a gradient runs along every edge behind `outputs`, in the order in
    which backward would run.

    Backward functions are called one by one, without the engine: no `.grad` is written,
    not even of tensors with `retain_grad()`, nothing is freed, no hook on a tensor,
    node or module runs, and backward() can still be called. Hooks that unpack saved
    tensors run, and checkpoints recompute, because a gradient needs those tensors. A
    custom Function is not called, because its backward may keep state: what lies behind
    it is not measured, and the notes say so.

    Parameters
    ----------
    outputs
        a tensor, or any nesting of tensors; one that is not a single number
        stands for the sum of its elements.
    model, params
        name the leaves, as for `gradviz.walk`.
    recording
        a `gradviz.record()`, so that the table can go by module. Without it,
        the one that is open.
    run_custom
        call the backward of custom Functions, too.

    Raises
    ------
    NoGraphError, NotATensorError
        as `gradviz.walk`.
    GradientError
        backward could not run either (freed, or modified in place), or
        looking would disturb: a reentrant checkpoint writes `.grad`.

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html

    Examples
    --------
    >>> import torch, gradviz
    >>> w = torch.tensor([3.0, 0.0], requires_grad=True)
    >>> loss = (w * w).sum()
    >>> [(leaf.names, leaf.norm, leaf.zeros) for leaf in gradviz.flow(loss).leaves]
    [(('w',), 6.0, 0.5)]
    """
    from gradviz.gradients.flow import measure
    from gradviz.gradients.live import open_graph
    from gradviz.recording.record import open_recording

    refuse_graph(outputs, "flow(loss)")
    variables = callers_variables(sys._getframe(1))
    recording = recording or open_recording()
    attribution = recording.attribution(model, variables) if recording else None
    walked = capture(
        outputs,
        model=model,
        params=params,
        variables=variables,
        attribution=attribution,
    )
    return measure(open_graph(outputs, walked), run_custom=run_custom)


def paths(
    output: torch.Tensor,
    target: torch.Tensor | str,
    *,
    limit: int = 1000,
    model: torch.nn.Module | None = None,
    params: Mapping[str, torch.Tensor] | None = None,
    run_custom: bool = False,
) -> Paths:
    """The chain rule path by path: every way from `output` back to `target`, and its
    share of the gradient.

    A share is a chain of vector-Jacobian products along the path. The shares of all
    paths add up to the gradient. Nothing is disturbed: see `gradviz.flow`.

    Parameters
    ----------
    output
        a tensor; one that is not a single number stands for the sum of its
        elements.
    target
        a leaf or an intermediate result that `output` was computed from, or its
        name: `"net.0.weight"`.
    limit
        up to this many paths are all followed. Of more, only the largest; all
        are counted.
    model, params
        name the leaves, as for `gradviz.walk`.
    run_custom
        call the backward of custom Functions, too; without, a path through
        one raises.

    Returns
    -------
    Paths
        `paths`, the largest share first, each with its `contribution` in the shape of
        `target`; `count` of all there are; `total`, the gradient of `target`.

    Raises
    ------
    GradientError
        no path leads to `target`, or as `gradviz.flow`.

    Notes
    -----
    Source:
    https://docs.pytorch.org/tutorials/beginner/understanding_leaf_vs_nonleaf_tutorial.html

    Examples
    --------
    >>> import torch, gradviz
    >>> x, w = torch.tensor(2.0, requires_grad=True), torch.tensor(1.0, requires_grad=True)
    >>> y = (x + w) * (w + 1)
    >>> paths = gradviz.paths(y, w)
    >>> paths.count, [float(path.contribution) for path in paths.paths], float(paths.total)
    (2, [3.0, 2.0], 5.0)
    """
    from gradviz.gradients.live import open_graph
    from gradviz.gradients.paths import find_paths

    variables = callers_variables(sys._getframe(1))
    tensor = _checked("paths", output, target, variables, model, params)
    walked = capture(output, model=model, params=params, variables=variables)
    live = open_graph(output, walked)
    return find_paths(live, tensor, limit=limit, run_custom=run_custom)


def why(
    outputs: object,
    tensor: torch.Tensor | str,
    *,
    model: torch.nn.Module | None = None,
    recording: Recording | None = None,
) -> Why:
    """Why a backward from `outputs` gives `tensor` a gradient, or none: who holds it,
    which path leads to it, which step fills it.

    Parameters
    ----------
    outputs
        a tensor, or any nesting of tensors.
    tensor
        a leaf or an intermediate result, or its name: `"net.0.weight"`.
    model
        names its parameters, for a caller that holds it in no variable.
    recording
        a `gradviz.record()`, which knows modules that were never called.
        Without it, the one that is open.

    Returns
    -------
    Why
        `grad` says whether `.grad` is filled, and at which step of backward; `reason`
        why it is not.

    Raises
    ------
    NotATensorError
        there is no tensor in `outputs`.

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/notes/autograd.html

    Examples
    --------
    >>> import torch, gradviz
    >>> w, v = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    >>> loss = (w * w).sum()
    >>> gradviz.why(loss, w).grad, gradviz.why(loss, v).reason
    ('empty now, filled at step 3 of 3', 'no path leads to it from the loss')
    """
    from gradviz.explanation import explain
    from gradviz.recording.record import open_recording
    from gradviz.run.outputs import LiveOutputs

    variables = callers_variables(sys._getframe(1))
    if model is not None and not name_of(model, variables):
        variables = [*variables, {"model": model}]
    value = _checked("why", outputs, tensor, variables, model)
    name = tensor if isinstance(tensor, str) else name_of(value, variables)
    live = LiveOutputs(outputs, variables, "", recording=recording or open_recording())
    return explain(live, value, name)


def summary(
    model: object,
    *inputs: object,
    columns: Sequence[str] = (),
    depth: int | Literal["auto", "all"] = "auto",
    **named: object,
) -> RenderableType:
    """The table of modules of a model that is run once: output, parameters, FLOPs, bytes
    saved for backward.

    Afterwards buffers, `.grad`, train and eval flags, grad mode and random states are as
    before.

    Parameters
    ----------
    model
        a module, or a function of the inputs. Without inputs a graph, or tensors that
        were computed already.
    inputs, named
        the arguments of its forward(). A shape such as `(1, 3, 224, 224)` is
        filled with random numbers, as is a text of `--input`: `"2,16:int64<1000"`.
    columns
        names of columns, such as `["output", "FLOPs"]`.
    depth
        levels of modules.

    Raises
    ------
    TargetError
        an argument of forward() is missing.
    FormatError
        there is no such column.

    Notes
    -----
    Source: https://docs.pytorch.org/docs/stable/generated/torch.utils.flop_counter.FlopCounterMode.html

    Examples
    --------
    >>> import torch, gradviz
    >>> print(gradviz.summary(torch.nn.Linear(3, 2), (5, 3), columns=["output", "FLOPs"]))
    Linear
    module  output  FLOPs
    Linear  (5, 2)     60
    <BLANKLINE>
    output: float32 in every row
    FLOPs: forward of what requires grad, 2 a multiply-add
    <BLANKLINE>
    2 backward functions, 2 leaves, 1 output, 3 edges
    longest path: 2 backward functions
    ops: 1 addmm, 1 t
    """
    from gradviz.draw.options import Options
    from gradviz.draw.tree import SUMMARY, tree
    from gradviz.recording.record import record
    from gradviz.run.forward import forward_pass
    from gradviz.run.inputs import given_input
    from gradviz.run.outputs import LiveOutputs
    from gradviz.run.reading import read_graph

    chosen = tuple(columns) or SUMMARY
    options = Options(by="module", columns=chosen, depth=depth)
    variables = callers_variables(sys._getframe(1))
    if inputs or named:
        name = name_of(model, variables) or type(model).__name__
        given = [(given_input(value), value) for value in inputs]
        for key, value in named.items():
            given.append((given_input(value, key), value))
        with record() as recording, forward_pass(model, name, "Python", given) as run:
            space, title = run.names(name), name + run.remark
            live = LiveOutputs(run.outputs, [space], title, recording=recording)
            graph = read_graph(live)
    else:
        graph = graph_of(model)
    return tree(graph, options)
