"""One forward pass of a model that nobody ran, for `--input` and `gradviz.summary`:
the only place where gradviz runs a model.

All that the pass changes is changed in copies: see `as_before`.
"""

from __future__ import annotations

import copy
import inspect
import random
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any, NamedTuple

import torch

from gradviz.errors import TargetError, did_you_mean
from gradviz.run.inputs import InputSpec
from gradviz.wording import plural

Model = Callable[..., object]
Modules = Sequence[torch.nn.Module]
_CONTAINERS = (dict, OrderedDict, list, set, deque)


class Forward(NamedTuple):
    """One pass: the model that was called, what it returned, its arguments by name, and
    what a title must say of it.
    """

    model: Model
    outputs: object
    arguments: Mapping[str, object]
    remark: str

    def names(self, model: str) -> dict[str, object]:
        """What a walk is to call all of it, the model by this name."""
        return {"output": self.outputs, **self.arguments, model: self.model}


@contextmanager
def forward_pass(
    value: object, name: str, place: str, inputs: Sequence[tuple[InputSpec, object]]
) -> Iterator[Forward]:
    """Call the model that `name` in `place` holds, once; all is as before when the block
    ends. Each input has its value, if it is no shape.
    """
    with _random_states():
        model = model_of(value, name, place)
        modules = modules_of(model)
        with as_before(modules):
            floats = filter(torch.is_floating_point, _parameters(modules))
            like = next(floats, None)
            positional, named = [], {}
            for spec, given in inputs:
                argument = given if spec.place else tensor_of(spec, like)
                if spec.keyword:
                    named[spec.keyword] = argument
                else:
                    positional.append(argument)
            yield run_forward(model, modules, positional, named, name)


def value_of_input(value: Any) -> object:
    """What a function returns, the first batch of a loader, or the value itself."""
    if inspect.isroutine(value):
        value = value()
    if isinstance(value, torch.utils.data.DataLoader):
        return next(iter(value))
    return value


# -- leaving everything as it was ------------------------------------------------------


@contextmanager
def as_before(modules: Modules) -> Iterator[None]:
    """Inside, gradients are recorded and random numbers begin at a fixed seed; afterwards
    the modules, grad mode and random states are as before, to the bit and the version.

    Each module has a copy of its attributes meanwhile, with clones of buffers and other
    tensors that are no parameters, copies of plain containers, and no `.grad`.
    """
    parameters = _parameters(modules)
    grads = [(p, p.grad) for p in parameters if p.grad is not None]
    before = [
        (module, type(module), vars(module), dict(module._forward_pre_hooks))
        for module in modules
    ]
    scripted = [one for one in modules if isinstance(one, torch.jit.ScriptModule)]
    buffers = [buffer for one in scripted for buffer in one.buffers(recurse=False)]
    values = [
        buffer.clone() for buffer in buffers
    ]  # they are kept out of Python's reach
    copies: dict[int, Any] = {}
    with ExitStack() as stack:
        stack.enter_context(_random_states())
        stack.enter_context(torch.inference_mode(False))
        try:
            with torch.no_grad():
                for module, _, attributes, _ in before:
                    inside = _copied(attributes, copies)
                    object.__setattr__(module, "__dict__", inside)
            for parameter, _ in grads:
                parameter.grad = None
            stack.enter_context(torch.enable_grad())
            yield
        finally:
            for module, kind, attributes, hooks in before:
                object.__setattr__(module, "__dict__", attributes)
                if type(module) is not kind:  # a lazy one, which also drops its hook
                    object.__setattr__(module, "__class__", kind)
                    module._forward_pre_hooks.update(hooks)
            for buffer, value in zip(buffers, values):
                with torch.no_grad():
                    buffer.copy_(value)
            for parameter, grad in grads:
                parameter.grad = grad


def _is_lazy(value: object) -> bool:
    if not isinstance(value, torch.Tensor):
        return False
    return bool(torch.nn.parameter.is_lazy(value))


def _parameters(modules: Modules) -> list[torch.nn.Parameter]:
    """Each that has its values already, once."""
    own = (module.parameters(recurse=False) for module in modules)
    unique = dict.fromkeys(chain.from_iterable(own))
    return [parameter for parameter in unique if not _is_lazy(parameter)]


def _copied(value: Any, copies: dict[int, Any]) -> Any:
    """A copy of what a pass may change in place, one for each object; other things
    themselves.
    """
    if id(value) in copies:
        return copies[id(value)]

    copied = value
    if _is_lazy(value):
        copied = copy.deepcopy(value)
    elif isinstance(value, torch.Tensor):
        if not isinstance(value, torch.nn.Parameter) and not value.requires_grad:
            copied = value.clone()
    elif type(value) in _CONTAINERS:
        copied = copies[id(value)] = copy.copy(value)
        if isinstance(copied, dict):
            for key, item in value.items():
                copied[key] = _copied(item, copies)
        elif isinstance(copied, list):
            copied[:] = [_copied(item, copies) for item in value]
    copies[id(value)] = copied
    return copied


@contextmanager
def _random_states() -> Iterator[None]:
    numpy = sys.modules.get("numpy.random")
    state = random.getstate()
    numpy_state = numpy.get_state() if numpy is not None else None
    devices = range(torch.cuda.device_count() if _cuda_runs() else 0)
    try:
        with torch.random.fork_rng(devices):
            torch.default_generator.manual_seed(0)
            yield
    finally:
        random.setstate(state)
        if numpy is not None:
            numpy.set_state(numpy_state)


def _cuda_runs() -> bool:
    """Whether there are random states of a GPU, which are not to be made by asking."""
    runs: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return runs


# -- the model -------------------------------------------------------------------------


def model_of(value: Any, name: str, place: str) -> Model:
    """What to call: an instance or a function itself, an instance of a class, or what a
    function without arguments makes. Raises TargetError where it cannot be made.
    """
    makes_one = isinstance(value, type)
    if inspect.isroutine(value):
        makes_one = not _missing(value)
    if makes_one:
        missing = _missing(value)
        if missing:
            example = (
                f"net = {value.__name__}({', '.join(f'{one}=...' for one in missing)})"
            )
            raise TargetError(
                f"{name} in {place} needs arguments: {', '.join(missing)}. "
                f"Make an instance there, {example}, and name that: {place}:net"
            )
        value = value()

    if not callable(value):
        raise TargetError(f"{name} in {place} is a {type(value).__name__}, not a model")
    return value  # type: ignore[no-any-return]


def _missing(function: Model, *given: object, **named: object) -> list[str]:
    """Arguments without a default that a call leaves open."""
    signature = _signature(function)
    if signature is None:
        return []
    bound = signature.bind_partial(*given, **named).arguments
    open_kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty
        and one.kind not in open_kinds
        and one.name not in bound
    ]


def _signature(function: Model) -> inspect.Signature | None:
    called = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return inspect.signature(called)
    except (ValueError, TypeError):  # it is no function of Python's
        return None


def modules_of(model: Model) -> Modules:
    """Its modules, and those that its function uses by name."""
    called = getattr(model, "forward", model)
    roots = [model, getattr(model, "__self__", None)]
    function = getattr(called, "__func__", called)
    if inspect.isfunction(function):
        used = inspect.getclosurevars(function)
        roots += used.globals.values()
        roots += used.nonlocals.values()
    found: dict[torch.nn.Module, None] = {}
    for root in roots:
        if isinstance(root, torch.nn.Module):
            found |= dict.fromkeys(root.modules())
    return list(found)


def names_of_modules(namespace: Mapping[str, object]) -> list[str]:
    """Names in a script that `--input` may be given with."""
    return [
        name
        for name, value in namespace.items()
        if isinstance(value, torch.nn.Module)
        or (
            isinstance(value, type)
            and issubclass(value, torch.nn.Module)
            and value.__module__ == namespace.get("__name__")
        )
    ]


# -- its arguments ---------------------------------------------------------------------


def run_forward(
    model: Model,
    modules: Modules,
    inputs: Sequence[Any],
    named: Mapping[str, Any],
    label: str,
) -> Forward:
    """Call the model once, inside `as_before`. Where it has no parameter that requires
    grad, its floating inputs do. Raises TargetError where inputs are missing.
    """
    positional, named = _spread(model, inputs, named, label)
    remark = ""
    if not any(parameter.requires_grad for parameter in _parameters(modules)):
        positional = [_with_grad(value) for value in positional]
        named = {name: _with_grad(value) for name, value in named.items()}
        remark = " (no parameter requires grad, so the input does)"

    signature = _signature(model)
    arguments = dict(named)
    if signature is not None:
        arguments = signature.bind(*positional, **named).arguments
    return Forward(model, model(*positional, **named), arguments, remark)


def _with_grad(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.detach().requires_grad_()
    return value


def _spread(
    model: Model, inputs: Sequence[Any], named: Mapping[str, Any], label: str
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of the call: a batch whose parts are what forward() takes one by
    one is given so.
    """
    signature = _signature(model)
    positional, named = list(inputs), dict(named)
    if signature is None:
        return positional, named

    takes = signature.parameters
    if len(positional) == 1 and not named:
        (batch,) = positional
        by_name = isinstance(batch, Mapping)
        if by_name and len(batch) and {*batch} <= {*takes}:
            return [], dict(batch)
        if isinstance(batch, (tuple, list)) and _missing(model, batch):
            positional = list(batch)

    text = (
        f"forward{signature}"
        if isinstance(model, torch.nn.Module)
        else f"{label}{signature}"
    )
    try:
        missing = _missing(model, *positional, **named)
    except TypeError as error:
        hint = ""
        for name in named:
            if name not in takes:
                hint = f" {did_you_mean(name, takes, what='arguments')}"
        raise TargetError(f"{text} of {label}: {error}.{hint}") from None
    if missing:
        raise TargetError(
            f"{text} of {label} needs {plural(len(missing), 'more input')}: {', '.join(missing)}. "
            f"Give each one: --input ... --input {missing[-1]}=1,8"
        )
    return positional, named


def tensor_of(spec: InputSpec, like: torch.Tensor | None) -> torch.Tensor:
    """The tensor that a shape asks for: normal random numbers, or 0 where its dtype has
    no fractions, or uniform ones of a range. `like` has the model's dtype and device.

    Raises TargetError for a dtype that torch does not have.
    """
    dtype, device = torch.get_default_dtype(), None
    if like is not None:
        dtype, device = like.dtype, like.device
    if spec.dtype:
        named = getattr(torch, spec.dtype, None)
        if not isinstance(named, torch.dtype):
            names = [
                name
                for name, value in vars(torch).items()
                if isinstance(value, torch.dtype)
            ]
            hint = did_you_mean(spec.dtype, names, what="dtypes")
            raise TargetError(f"torch has no dtype {spec.dtype!r}. {hint}")
        dtype = named

    fractions = dtype.is_floating_point or dtype.is_complex
    if spec.below is not None:
        numbers = torch.rand(spec.shape) * spec.below
    elif fractions:
        numbers = torch.randn(spec.shape)
    else:
        numbers = torch.zeros(spec.shape)
    return numbers.to(device, dtype)
