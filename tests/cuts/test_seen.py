"""Nothing of the user's notices that cuts are seen: whatever it computes, asks, raises, warns, pickles, scripts or compiles."""

from __future__ import annotations

import inspect
import os
import pickle
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode, has_torch_function

from gradviz.cuts.lines import CutWatch
from gradviz.cuts.seen import CutCalls
from gradviz.source.cut import METHODS
from tests.cli.scripts import environment, script

pytestmark = pytest.mark.slow


def calls() -> CutCalls:
    watch = CutWatch()
    return CutCalls(watch)


def both(code: Callable[[], Any]) -> tuple[Any, Any]:
    """What code answers in plain Python, and under the watch."""
    answers = []
    for watched in (False, True):
        torch.manual_seed(0)
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                if watched:
                    with calls().watching():
                        answer = code()
                else:
                    answer = code()
        finally:
            torch.set_warn_always(False)
        answers.append((answer, [(str(one.message), one.category, one.filename, one.lineno) for one in told]))
    return answers[0], answers[1]


def outcome(code: Callable[[], Any]) -> Any:
    """What code gives, in plain data; or what it raises, with all lines of the traceback."""
    try:
        made = code()
    except Exception as error:
        lines = [(frame.filename, frame.lineno, frame.name) for frame in traceback.extract_tb(error.__traceback__)]
        return type(error), str(error), lines[1:]
    if isinstance(made, torch.Tensor):
        return type(made), made.dtype, made.requires_grad, made.is_leaf, made.tolist()
    return type(made), str(made)


def _graph() -> torch.Tensor:
    return torch.ones(1, 1, requires_grad=True) * 2


def _assigned(value: Any) -> torch.Tensor:
    w = torch.ones(1, 1, requires_grad=True)
    w.data = value
    return w


def _copied_into(value: Any) -> torch.Tensor:
    w = torch.ones(1, 1, requires_grad=True)
    with torch.no_grad():
        w.copy_(value)
    return w


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("gt", "lt", "ge", "le", "eq", "ne"), (1,)),
    **dict.fromkeys(("__gt__", "__lt__", "__ge__", "__le__", "__eq__", "__ne__"), (1,)),
    "multinomial": (1,),
}
CALLED: dict[str, Callable[[], Any]] = {
    **{
        name: lambda name=name: getattr(_graph() / 4 if name == "bernoulli" else _graph(), name)(
            *ARGUMENTS.get(name, ())
        )
        for name in METHODS
    },
    "detach, spelled": lambda: _graph().detach(),
    "item, spelled": lambda: _graph().item(),
    "tolist, spelled": lambda: _graph().tolist(),
    "numpy, spelled": lambda: _graph().detach().numpy(),
    "argmax, spelled": lambda: _graph().argmax(),
    "float": lambda: float(_graph()),
    "int": lambda: int(_graph()),
    "complex": lambda: complex(_graph()),
    "an index": lambda: [5, 6, 7][torch.tensor(1)],
    "a comparison": lambda: _graph() > 1,
    "the other way round": lambda: _graph() > 1,
    "is equal": lambda: _graph() == _graph(),
    "data": lambda: _graph().data,
    "data =": lambda: _assigned(_graph()),
    "copy_": lambda: _copied_into(_graph()),
    "tensor": lambda: torch.tensor(_graph()),
    "tensor of a list": lambda: torch.tensor([_graph().sum(), 2.0], requires_grad=True),
    "as_tensor": lambda: torch.as_tensor(_graph()),
    "as_tensor of arrays": lambda: torch.as_tensor([np.ones(2), np.ones(2)]),
    "Parameter": lambda: nn.Parameter(_graph()),
    "sample": lambda: Normal(_graph(), 1.0).sample(),
    "grad": lambda: torch.autograd.grad(x := torch.ones(1, requires_grad=True), x)[0],
    "set_grad_enabled": lambda: _switched(),
}
RAISING: dict[str, Callable[[], Any]] = {
    "item": lambda: torch.ones(2, requires_grad=True).item(),
    "float": lambda: float(torch.ones(2, requires_grad=True)),
    "numpy": lambda: _graph().numpy(),
    "array": lambda: np.asarray(_graph()),
    "a comparison": lambda: _graph() > "a",  # type: ignore[operator]
    "argmax": lambda: _graph().argmax(7),
    "data =": lambda: _assigned(3),
    "copy_": lambda: _copied_into("a"),
    "tensor": lambda: torch.tensor(object()),
    "tensor of a class that raises": lambda: torch.tensor(_Refusing()),
    "as_tensor": lambda: torch.as_tensor("a"),
    "grad": lambda: torch.autograd.grad(torch.ones(1), torch.ones(1)),
}


class _Refusing:
    def __len__(self) -> int:
        raise KeyError("not known")

    def __getitem__(self, at: int) -> None:
        raise KeyError("not known")


def _switched() -> tuple[bool, bool]:
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    off = torch.is_grad_enabled()
    torch.set_grad_enabled(before)
    return before, off


class Named(torch.Tensor):
    """A subclass of the user's that says what it was asked for."""

    asked: list[object] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


class Counted(TorchFunctionMode):
    """A mode of the user's."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[object] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.asked.append(func)
        return func(*args, **(kwargs or {}))


def _of_a_subclass() -> list[object]:
    Named.asked.clear()
    x = torch.ones(2, requires_grad=True).as_subclass(Named)
    x.detach(), x > 0, x.data, x.sum().item(), x.argmax()
    return [*Named.asked, torch.Tensor.detach in Named.asked, torch.Tensor.argmax in Named.asked]


def _of_a_mode() -> list[object]:
    x = torch.ones(2, requires_grad=True)
    with Counted() as mode:
        x.detach(), x > 0, x.data, x.sum().item(), x.tolist(), Normal(x, 1.0).sample()
    return mode.asked


def _encoder() -> bytes:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    with torch.no_grad():
        out = net(torch.randn(1, 3, 8), src_key_padding_mask=torch.tensor([[False, False, True]]))
        direct = net.layers[0].self_attn.forward(out, out, out, need_weights=False)[0]
    return bytes(out.numpy().tobytes() + direct.numpy().tobytes())


NAMES = (*METHODS, "data", "copy_")
FUNCTIONS: dict[str, Callable[[], Any]] = {
    **{f"Tensor.{name}": lambda name=name: getattr(torch.Tensor, name) for name in NAMES},
    "tensor": lambda: torch.tensor,
    "as_tensor": lambda: torch.as_tensor,
    "Parameter": lambda: nn.Parameter,
    "grad": lambda: torch.autograd.grad,
    "set_grad_enabled": lambda: torch.set_grad_enabled,
    "sample": lambda: Normal.sample,
}
TRACED = [name for name, kind in METHODS.items() if kind in ("detach", "integer") and name != "detach_"]


def _looks(function: Any) -> list[Any]:
    """What can be asked of a function, and what a pickle of it gives."""
    try:
        signature = str(inspect.signature(function))
    except (TypeError, ValueError) as error:
        signature = type(error).__name__
    names = [getattr(function, name, "") for name in ("__name__", "__module__", "__doc__")]
    try:
        same = pickle.loads(pickle.dumps(function)) is function
    except Exception as error:
        same = type(error).__name__
    return [inspect.isroutine(function), signature, *names, same]


def _method(name: str) -> Callable[[torch.Tensor], Any]:
    return lambda x: getattr(x * 2, name)(*ARGUMENTS.get(name, ()))


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor([1.0]) + torch.as_tensor(2) + x.detach().argmax()


class Detaching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin().detach() + (x > 0) + x.argmax()


TENSOR = torch.tensor
ALIKE: dict[str, Callable[[], Any]] = {
    **{f"{name} gives and warns": lambda code=code: outcome(code) for name, code in CALLED.items()},
    **{f"{name} raises": lambda code=code: outcome(code) for name, code in RAISING.items()},
    **{f"{name} looks": lambda get=get: _looks(get()) for name, get in FUNCTIONS.items()},
    **{f"{name} in make_fx": lambda name=name: make_fx(_method(name))(torch.ones(2)).code for name in TRACED},
    **{
        f"{name} in a trace": lambda name=name: str(torch.jit.trace(_method(name), torch.ones(2)).graph)
        for name in TRACED
    },
    "the same methods": lambda: [getattr(torch.Tensor, name) is known for name, known in zip(NAMES, THEIRS)],
    "a pickle of before": lambda: pickle.loads(pickle.dumps(TENSOR)) == TENSOR,
    "overrides": lambda: (has_torch_function(()), torch._C._len_torch_function_stack()),
    "a subclass": _of_a_subclass,
    "a mode": _of_a_mode,
    "attention": _encoder,
    "script": lambda: str(torch.jit.script(_scripted).code),
    "make_fx of a new tensor": lambda: make_fx(lambda x: x.detach() + torch.tensor(1.0))(torch.ones(2)).code,
    "export": lambda: str(torch.export.export(Detaching(), (torch.ones(3),)).graph),
    "fx": lambda: torch.fx.symbolic_trace(Detaching()).code,
    "vmap": lambda: torch.func.vmap(lambda x: x.detach().sum())(torch.ones(2, 3)).tolist(),
    "grad of a transform": lambda: torch.func.grad(lambda x: (x * x.detach()).sum())(torch.ones(3)).tolist(),
}
"""What code gives, in plain data, is the same under the watch: results, warnings at the caller's line, tracebacks, names,
signatures, pickles, and what torch's own tracers make of it.
"""
THEIRS = [getattr(torch.Tensor, name) for name in NAMES]
NEEDS_3_11 = pytest.mark.skipif(sys.version_info < (3, 11), reason="a frame cannot be taken from a traceback")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_3_11 if name.endswith("raises") else ()) for name in ALIKE]
)
def test_it_is_as_without(name: str) -> None:
    plain, seen = both(ALIKE[name])
    assert plain == seen
    if name.endswith("raises"):
        assert isinstance(plain[0][2], list)  # the lines of a traceback


def installed() -> list[object]:
    """What is replaced, and the very objects."""
    of_class = [(name in vars(torch.Tensor), inspect.getattr_static(torch.Tensor, name)) for name in NAMES]
    codes = [one.__code__ for one in (nn.Parameter.__new__, torch.compile, Normal.sample)]
    return [*of_class, *codes, torch.tensor, torch.as_tensor]


def test_everything_is_put_back_also_after_an_error() -> None:
    before = installed()
    with pytest.raises(ZeroDivisionError), calls().watching():
        assert installed() != before
        raise ZeroDivisionError
    after = installed()
    assert after == before and float(torch.ones(1)) == 1.0


def test_compiling_ends_it() -> None:
    """Also where the compiler's table of torch's functions was made before, as make_fx does it."""
    counters = torch._dynamo.utils.counters
    counters.clear()
    table = torch._dynamo.trace_rules.get_torch_obj_rule_map
    table.cache_clear()
    before = installed()
    with calls().watching():
        table()

        @torch.compile(backend="eager")
        def f(x: torch.Tensor) -> torch.Tensor:
            return (x.sin() * 2).detach() + torch.tensor(1.0)

        assert torch.equal(f(torch.ones(2)), torch.ones(2).sin() * 2 + 1)
        assert installed() == before
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] == 1


def test_other_threads_are_not_told() -> None:
    watch = CutWatch()
    with CutCalls(watch).watching():
        thread = threading.Thread(target=lambda: (_graph().detach(), torch.tensor(_graph().sum().item())))
        thread.start()
        thread.join()
    assert not watch.every


class Late(Exception):
    """What a handler of signals raises."""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers")
def test_what_a_handler_of_signals_raises_reaches_the_script() -> None:
    def late(*_: object) -> None:
        raise Late

    before, caught, x = signal.signal(signal.SIGALRM, late), 0, _graph()
    try:
        with calls().watching():
            for _ in range(50):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.002)
                    while True:
                        x.detach()
                except Late:
                    caught += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert caught == 50


DEEP = """
import torch
kinds = set()
x = torch.ones(1, requires_grad=True)
def deeper(n):
    x.detach(), float(x), torch.tensor(1.0)
    return deeper(n + 1)
for _ in range(20):
    try:
        deeper(0)
    except BaseException as error:
        kinds.add(type(error).__name__)
print(kinds)
(x * 2).sum().backward()
"""


@pytest.mark.slow
@pytest.mark.fresh
def test_the_limit_of_recursion_stays_what_it_is(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradviz", "check", "--continue", str(script(tmp_path, DEEP))]
    told = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "{'RecursionError'}" in told.stdout + told.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_goes_on() -> None:
    with calls().watching():
        child = os.fork()
        if not child:
            os._exit(int(_graph().item()) - 2)
        assert os.waitpid(child, 0)[1] == 0
