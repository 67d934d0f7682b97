"""The private names of torch that capture relies on, probed once, in one place.

Every function here works on any torch from 2.6 on; where a name is missing it degrades
and `missing()` says what a reader then does not get. Nothing else in gradviz spells
these names.

Importing this module only looks up names: it may happen inside the script's
`import torch`, where making a tensor in another thread would wait for that import for
ever. What has to be tried out is tried when it is first asked for.
"""

from __future__ import annotations

import _thread
import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import Any, NamedTuple

import torch

from gradviz.graph.amounts import NOT_SHOWN
from gradviz.variables.objects import class_attribute, submodules

Node = Any  # a torch.autograd.graph.Node; its private members are not typed
LAST = 2**64 - 1
"""Sequence number of AccumulateGrad: autograd runs it before everything else that is
ready.
"""


_data_address = getattr(torch._C, "_data_address", None)

OWN_THREADS: set[int] = set()
"""Threads that make nodes of gradviz's, which no recording is about."""


class _Probe:
    """What the running torch can do, tried out on a graph of one node."""

    def __init__(self) -> None:
        self.wrappers_are_preserved = False
        self.small: dict[torch.dtype, torch.Tensor] = {}
        # While torch is imported nothing of the caller's is in force, and an old torch
        # makes other threads wait for the import.
        if not HAS_RAW_DATA and getattr(torch.__spec__, "_initializing", False):
            return self._try()

        # In a thread of its own: there, the caller's no_grad, modes and sequence
        # numbers are not in force. One from `threading` would be traced by the
        # recording of the user's lines, and use up a number in the names of the user's
        # threads.
        done = _thread.allocate_lock()
        done.acquire()
        _thread.start_new_thread(self._run, (done,))
        done.acquire()

    def _run(self, done: _thread.LockType) -> None:
        OWN_THREADS.add(_thread.get_ident())
        try:
            # what it held is gone when the lock is: a tensor that this thread drops
            # while Python ends aborts it
            self._try()
        finally:
            OWN_THREADS.discard(_thread.get_ident())
            done.release()

    def _try(self) -> None:
        tensor = torch.ones(1, requires_grad=True, device="cpu") * 1
        node, other = tensor.grad_fn, object()
        self.wrappers_are_preserved = sys.getrefcount(node) > sys.getrefcount(other)
        small = (
            torch.zeros((), dtype=dtype, device="cpu")
            for dtype in (torch.float32, torch.int8, torch.float32)
        )
        self.small = dict(zip((torch.float64, torch.int64, torch.complex128), small))


@cache
def _probe() -> _Probe:
    return _Probe()


def wrappers_are_preserved() -> bool:
    """Whether the Python wrapper of a node lives as long as the node (torch 2.12 or
    2.13 and later).

    Then a deep graph that was touched from Python crashes the process when it is
    deleted: see `keepalive`.
    """
    return _probe().wrappers_are_preserved


HAS_METADATA = hasattr(torch._C._FunctionBase, "_input_metadata")
HAS_RAW_DATA = hasattr(torch._C._autograd.SavedTensor, "data")
BackwardCFunction = torch.autograd.function.BackwardCFunction


def missing() -> tuple[str, ...]:
    """What this version of torch does not let Python see, in words for `Graph.notes`."""
    notes = []
    if not HAS_METADATA:
        notes.append(
            f"torch {torch.__version__} does not tell the shapes of the tensors that a node made"
        )
    if not HAS_RAW_DATA:
        notes.append(f"torch {torch.__version__} {NOT_SHOWN}, so they are left out")
    return tuple(notes)


def smaller(dtype: torch.dtype) -> torch.Tensor | None:
    """A 0-dim tensor of a smaller dtype, for `is_wrapped_number`. None where a Python
    number never has this one.
    """
    return _probe().small.get(dtype)


def is_wrapped_number(tensor: torch.Tensor, smaller: torch.Tensor) -> bool:
    """Whether a 0-dim tensor is a Python number that autograd wrapped, as in `x * 2.5`.

    Type promotion tells: only a wrapped number leaves the dtype of a smaller 0-dim
    tensor alone (but for its category).
    """
    return torch.result_type(smaller, tensor) is not tensor.dtype


def is_number(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a Python number that autograd wrapped."""
    if tensor.dim() or tensor.device.type != "cpu":
        return False
    other = smaller(tensor.dtype)
    return other is not None and is_wrapped_number(tensor, other)


@lru_cache(maxsize=1024)
def arguments_of(op: str) -> tuple[tuple[tuple[str, bool], ...], ...]:
    """The arguments of each overload of one of torch's ops, and whether each holds
    tensors; none for an op that torch has no schema of.

    >>> [name for name, is_tensor in arguments_of("addmm")[0] if is_tensor]
    ['self', 'mat1', 'mat2']
    """
    ask = getattr(torch._C, "_jit_get_schemas_for_operator", None)
    if ask is None:
        return ()
    # autograd's node is called without the underscore of what is inside torch
    schemas = ask(f"aten::{op}") or ask(f"aten::_{op}")
    return tuple(
        tuple((one.name, "Tensor" in str(one.type)) for one in schema.arguments)
        for schema in schemas
        if not any(one.is_out for one in schema.arguments)
        and schema.overload_name != "hacked_twin"
    )


def address(tensor: torch.Tensor) -> int:
    """Where the storage of a plain tensor begins in memory, 0 where that is not told. A
    copy-on-write tensor stays as it is.
    """
    if (
        _data_address is None
        or type(tensor) not in (torch.Tensor, torch.nn.Parameter)
        or tensor.device.type != "cpu"
    ):
        return 0
    try:
        # of the storage, wherever in it the tensor begins
        return int(_data_address(tensor))
    except (RuntimeError, NotImplementedError):
        return 0


def transform_of(tensor: torch.Tensor) -> str:
    """The transform of torch.func that this tensor belongs to, "vmap" or "jvp"; "" for
    a tensor outside all of them.
    """
    functions = getattr(torch._C, "_functorch", None)
    try:
        if functions is None or not functions.is_functorch_wrapped_tensor(tensor):
            return ""
        # the stack tells only the innermost transform that is running
        if functions.is_batchedtensor(tensor):
            return "vmap"

        inner = functions.peek_interpreter_stack()
        if inner is not None:
            return str(inner.key()).rpartition(".")[2].lower()

        return "a transform"
    except AttributeError:
        return ""


def is_traced() -> bool:
    """Whether torch only traces what runs now: inside `make_fx`, `torch.jit.trace` or a
    transform of torch.func.

    Tensors then stand for others, and a size that is read may become part of what is
    traced.
    """
    proxies = getattr(
        sys.modules.get("torch.fx.experimental.proxy_tensor"), "get_proxy_mode", None
    )
    if torch._C._get_tracing_state() is not None or (
        proxies is not None and proxies() is not None
    ):
        return True
    functions = getattr(torch._C, "_functorch", None)
    return functions is not None and functions.peek_interpreter_stack() is not None


def made_as(tensor: torch.Tensor) -> str:
    """How a view came to be: "DEFAULT", "NO_GRAD_MODE", "INFERENCE_MODE", ... or ""
    where torch does not tell.
    """
    try:
        return str(torch._C._autograd._get_creation_meta(tensor)).rpartition(".")[2]
    except (AttributeError, RuntimeError):
        return ""


CAN_RECORD = hasattr(torch._C._autograd, "_get_sequence_nr")
peek_sequence: Any = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)
"""The number that the next node of this thread will get. Looking takes none."""


class FsdpParameter(NamedTuple):
    """A parameter under FSDP2: the shard that this process holds, and the whole one,
    which is the leaf while it is gathered.

    `owner` is the module that has it, as `attribute`. `whole` has no memory while it is
    not gathered.
    """

    owner: torch.nn.Module
    attribute: str
    shard: torch.Tensor
    whole: torch.Tensor | None


def fsdp_parameters(model: torch.nn.Module) -> Iterator[FsdpParameter]:
    """Every parameter that FSDP2 shards in a model; none where there is no FSDP2, or a
    torch that keeps them otherwise.
    """
    for _, module in submodules(model):
        ask = class_attribute(type(module), "_get_fsdp_state")
        if ask is None:
            continue

        try:
            state = ask(module)
            # torch 2.13; one group before
            groups = getattr(state, "_fsdp_param_groups", None)
            if groups is None:
                groups = [state._fsdp_param_group]
            parameters = [
                parameter
                for group in groups
                if group is not None
                for parameter in group.fsdp_params
            ]
            found = [
                FsdpParameter(
                    parameter._module_info.module,
                    parameter._module_info.param_name,
                    parameter.sharded_param,
                    getattr(parameter, "_unsharded_param", None),
                )
                for parameter in parameters
            ]
        except AttributeError:
            continue

        yield from found


# -- torch.compile ---------------------------------------------------------------------

COMPILED = "CompiledFunctionBackward"
"""The nodes that run the backward of what `torch.compile` compiled: a type for each
compiled graph.
"""


def compiled_program(kind: Any) -> str | None:
    """The program that nodes of this type run, as Python text; None where this torch
    does not tell.

    The cache on disk keeps it as text, too. torch would run that to make a module of
    it; here it is only read.
    """
    lazy = getattr(kind._forward_cls, "_lazy_backward_info", None)
    graph = getattr(getattr(lazy, "bw_module", None), "graph", None)
    if isinstance(graph, torch.fx.Graph):
        return graph.python_code("self").src

    serialized = getattr(getattr(lazy, "bw_module_fn", None), "__self__", None)
    arguments = getattr(serialized, "args", None)
    body = arguments[0] if type(arguments) is tuple and arguments else None
    text = body.get("_code") if isinstance(body, dict) else None
    return text if type(text) is str else None


def is_backward_compiled(kind: Any) -> bool | None:
    """Whether the backward is compiled by now. torch mostly does it when backward()
    first runs. None: it does not tell.
    """
    forward = kind._forward_cls
    return forward.compiled_bw is not None if hasattr(forward, "compiled_bw") else None
