"""What every test shares: the flag that refreshes golden files, and the proof that nothing stays installed."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import pytest

from gradviz import errors
from tests.browser import browser, open_page, tabs  # noqa: F401 -- one browser for all tests of a process
from tests.forks import forked  # noqa: F401 -- in every test

with suppress(ImportError):
    import setuptools  # noqa: F401 -- puts a folder of its own on sys.path, in whichever test imports it first

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # the tests share the cores: threads of torch that wait for one another cost most
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # started in the background, and what the tests start inherits it
    signal.signal(signal.SIGINT, signal.default_int_handler)


REFUSALS = (  # what gradviz may answer where torch is older than 2.10
    "does not tell which saved tensors a hook would have to unpack",
    "cannot show saved tensors without running hooks: memory held for backward is unknown",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[object]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test is skipped, with gradviz's sentence for it, where gradviz says that this torch cannot do what the test asks."""
    report = yield
    said = str(call.excinfo.value) if report.failed and call.excinfo else ""
    refused = [refusal for refusal in REFUSALS if refusal in said]
    if refused and "torch" in sys.modules:
        from gradviz.walker.private import HAS_RAW_DATA

        if not HAS_RAW_DATA:
            report.outcome = "skipped"
            report.longrepr = (str(item.path), item.location[1] or 0, f"this torch {refused[0]}")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests in `tests/attack` tried, in one line."""
    counts: Counter[str] = Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, count in report.user_properties:
                if name.startswith("tried: "):
                    counts[name.removeprefix("tried: ")] += count
    if counts:
        tried = ", ".join(f"{count:,} {name}" for name, count in counts.items())
        terminalreporter.write_line(f"tried by tests/attack: {tried}")


def _installed() -> dict[str, object]:
    """Everything global that gradviz could leave behind, by name. Torch's part only once torch is imported."""
    signal.getsignal(signal.SIGINT)  # puts back what another thread could not
    found: dict[str, object] = {
        "signal.signal, signal.getsignal": (signal.signal, signal.getsignal),
        "handlers of signals": [number for number in signal.valid_signals() if _is_ours(signal.getsignal(number))],
        "sys.gettrace()": sys.gettrace(),
        "sys.getprofile()": sys.getprofile(),
        "threading's trace function": getattr(threading, "_trace_hook", None),
        "what begins a thread": (
            _thread.start_new_thread,
            threading.Thread.start,
            getattr(threading, "_start_new_thread", None),
        ),
        "sys.argv": list(sys.argv),
        "sys.path": list(sys.path),
        "sys.excepthook": sys.excepthook,
        "sys.stdout": sys.stdout,
        "sys.stderr": sys.stderr,
        "__main__": sys.modules.get("__main__"),
        "the working directory": os.getcwd(),
        "gc.isenabled()": gc.isenabled(),
        "the recursion limit": sys.getrecursionlimit(),
    }
    if hasattr(sys, "monitoring"):
        found["sys.monitoring tools"] = [sys.monitoring.get_tool(number) for number in range(6)]
    if "torch" in sys.modules:
        found.update(_installed_in_torch())
    return found


def _is_ours(handler: object) -> bool:
    return (getattr(handler, "__module__", None) or "").startswith("gradviz")


def _installed_in_torch() -> dict[str, object]:
    import torch
    from torch.nn.modules import module
    from torch.optim import optimizer
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    hooks = [name for name in vars(module) if name.startswith("_global_") and "hooks" in name]
    found: dict[str, object] = {f"nn.Module's {name}": list(getattr(module, name)) for name in hooks}
    for owner, name in ((torch.Tensor, "backward"), (torch.autograd, "backward"), (torch.autograd, "grad")):
        found[f"{owner.__name__}.{name}"] = getattr(owner, name)
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)  # torch 2.5 and later
    found["saved tensor hooks"] = top(True) if top is not None else None
    found["function modes"] = list(_get_current_function_mode_stack())
    found["dispatch modes"] = list(_get_current_dispatch_mode_stack())
    found["grad mode"] = torch.is_grad_enabled()
    found["inference mode"] = torch.is_inference_mode_enabled()
    found["anomaly mode"] = torch._C.is_anomaly_enabled(), torch._C.is_anomaly_check_nan_enabled()
    found["anomaly mode's functions"] = [
        getattr(home, name)
        for home, name in (
            (torch, "is_anomaly_enabled"),
            (torch, "is_anomaly_check_nan_enabled"),
            (torch, "set_anomaly_enabled"),
            (torch.fx.traceback, "format_stack"),
            (torch.autograd, "_engine_run_backward"),
            (torch.autograd.graph, "_engine_run_backward"),
        )
    ]
    found["optimizer hooks"] = [
        list(optimizer._global_optimizer_pre_hooks),
        list(optimizer._global_optimizer_post_hooks),
    ]
    found["nn.Module.__call__"] = torch.nn.Module.__call__
    found["nn.Parameter.__new__"] = vars(torch.nn.Parameter)["__new__"]
    found["Optimizer.__init__"] = optimizer.Optimizer.__init__
    found["torch.from_numpy"] = torch.from_numpy
    # importing lightning replaces it, too
    found["torch.compile is gradviz's"] = torch.compile.__module__.startswith("gradviz")
    return found


@pytest.fixture(autouse=True, scope="module")
def what_is_there_is_not_looked_through_again() -> None:
    """A collection in a test looks through what its file has made, not through all that torch and other tests have."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # with Python's own, a quarter of the time of tests went into collections


@pytest.fixture(autouse=True)
def nothing_stays_installed(request: pytest.FixtureRequest) -> Iterator[None]:
    """After every test the interpreter is as it was: no hook, patch, mode or changed setting is left."""
    before = _installed()
    yield
    _compare(before, _installed())


@pytest.fixture(autouse=True)
def bugs_are_raised() -> Iterator[None]:
    """What a user is told of a bug of gradviz's, and gets the rest, fails a test."""

    def raise_it(error: Exception) -> str:
        raise error

    # a patch of its own: that of the test is to be undone before what is left is looked at
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(errors, "bug_told", raise_it)
        yield


@pytest.fixture(autouse=True)
def modules_of_scripts_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What a script imported from its own folder is not there for the next script, which may have a file of that name."""
    before = set(sys.modules)
    yield
    folders = (
        str(tmp_path_factory.getbasetemp()) + os.sep,
        os.path.join(os.path.dirname(__file__), "real", "programs"),
    )
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(folders):
            del sys.modules[name]


def _compare(before: dict[str, object], after: dict[str, object]) -> None:
    changed = [f"{name}: {before[name]!r} became {after[name]!r}" for name in before if before[name] != after[name]]
    assert not changed, "left behind by this test:\n  " + "\n  ".join(changed)


@pytest.fixture
def leaves_behind() -> Callable[[Callable[[], object]], list[str]]:
    """What calling a function leaves installed, by name."""

    def measure(run: Callable[[], object]) -> list[str]:
        before = _installed()
        run()
        after = _installed()
        return [name for name in before if before[name] != after[name]]

    return measure
