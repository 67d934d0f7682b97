"""`gradviz.watch`: around a training loop, notes every step, looks at the graph now and then, and writes what was seen.

Puts together the meter of steps, looks, history and page. Changes no number of the run; everything is undone when the `with` ends.
"""

from __future__ import annotations

import csv
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, get_args

import torch

from gradviz.checks.finding import Finding, Severity
from gradviz.draw.options import one_of
from gradviz.draw.output import encode, write
from gradviz.errors import FormatError, GradvizError, NotAModuleError, OutputError, WatchError, reason_of
from gradviz.rank import rank
from gradviz.run.engine import Afterwards, EngineCall, watching_backward
from gradviz.walker.signals import signalled
from gradviz.watching.history import COLUMNS, History
from gradviz.watching.look import OpenLook, StepLook
from gradviz.watching.page import RunPage
from gradviz.watching.steps import SIZE, Budget, StepMeter
from gradviz.wording import plural

PAGE, TABLE = "index.html", "numbers.csv"
"""Files in the folder of a watch."""
_SPAN = 3
"""Steps that a look lasts: what is held from the step before shows in the second one."""
_FREE, _SHARE = 1.0, 0.002
"""Seconds, and the part of the run, that all looks together may take after the first one."""
_UNSEEN = "no step of an optimizer that holds a parameter of the model was seen; call watch.step() after each update"

_log = logging.getLogger("gradviz")
_one = threading.Lock()  # of the watch that is open


def watch(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer | Iterable[torch.optim.Optimizer] | None = None,
    *,
    every: int = 100,
    out: str | os.PathLike[str] | None = None,
    raise_on: Severity | None = None,
) -> Watch:
    """Watch a training run: `with gradviz.watch(model, optimizer, every=100, out="runs/x"):` around the loop.

    Notes the loss and the gradient norm of every module at each step of an optimizer, on the device. At step 1 and every `every`
    steps it walks the graph, runs the checks of `gradviz check`, compares with step 1, and writes `out`.

    Args:
        model: whose parameters are watched.
        optimizer: one or several whose steps count. Without it, all that hold a parameter of `model`.
        every: steps between two looks. What a killed process had not written is at most that many.
        out: a folder for `index.html`, the page, and `numbers.csv`, all steps. Of several processes each has its own in there.
            Without it nothing is written: `save` writes the page.
        raise_on: "error", "warning" or "note": the first finding as bad as this ends the run with a WatchError, and so does a loss
            or gradient that is not finite.

    Raises:
        NotAModuleError, FormatError, OutputError: what was given cannot be watched, is no number of steps, or no folder.
        GradvizError: another watch is open in this process.
        WatchError: see `raise_on`. It comes out of `backward()` or `optimizer.step()`.

    >>> import torch, gradviz
    >>> net = torch.nn.Linear(2, 1)
    >>> sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    >>> with gradviz.watch(net, sgd) as watch:
    ...     for step in range(3):
    ...         sgd.zero_grad()
    ...         net(torch.ones(4, 2)).square().mean().backward()
    ...         sgd.step()
    >>> watch.steps, [look.step for look in watch.looks], len(watch.findings)
    (3, [1], 0)

    Source: https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.register_step_pre_hook.html
    """
    if not isinstance(model, torch.nn.Module):
        raise NotAModuleError(f"watch takes the model first, then its optimizer; the first is a {type(model).__name__}")
    if every < 1:
        raise FormatError(f"every={every}: give a number of steps, 1 or more")
    if raise_on is not None:
        one_of("raise_on", raise_on, get_args(Severity))
    optimizer = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else optimizer or ()
    return Watch(model, [*optimizer], every, _folder(out), raise_on)


def _folder(out: str | os.PathLike[str] | None) -> str:
    """The folder of this process, "" for none."""
    here = rank()
    if out is None or here is None:
        return os.fspath(out) if out is not None else ""
    return os.path.join(os.fspath(out), f"rank{here.number}")


class Watch:
    """What `gradviz.watch` returns. Used once; holds no tensor when the `with` has ended."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        every: int,
        out: str,
        raise_on: Severity | None,
    ) -> None:
        self._model: torch.nn.Module | None = model
        self._optimizers = optimizers
        self._every, self.out, self._raise_on = every, out, raise_on
        self._span = _SPAN if every > _SPAN else 1
        self.page = RunPage(type(model).__name__)
        self._meter: StepMeter | None = None  # while the run is watched
        self._look: OpenLook | None = None
        self._until, self._tap, self._listens = ExitStack(), ExitStack(), False
        self._budget = Budget(free=_FREE, share=_SHARE)
        self._next = 1  # the step of the next look
        self._notes: dict[str, str] = {}  # how complete the numbers are, by what a note is about
        self._thrifty = 0  # looks that were left out
        self.history = History(())
        self.looks: list[StepLook] = []
        self.steps = 0

    def __repr__(self) -> str:
        counts = plural(self.steps, "step"), plural(len(self.looks), "look"), plural(len(self.findings), "finding")
        return f"<Watch: {', '.join(counts)}{f', in {self.out}' if self.out else ''}>"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of all looks, each once, in the order in which they were found."""
        found = {(finding.id, finding.names): finding for look in self.looks[::-1] for finding in look.findings}
        return tuple(found.values())[::-1]

    # -- from beginning to end ------------------------------------------------------------------------------------------

    def __enter__(self) -> Watch:
        model, self._model = self._model, None
        if model is None:
            raise GradvizError("this watch has been used already: call gradviz.watch() for another one")
        if not _one.acquire(blocking=False):
            raise GradvizError(
                "another watch is open, and there can be one in a process: close that first, or give one watch all optimizers"
            )
        self._until.callback(_one.release)
        try:
            meter = self._meter = StepMeter(model, self._optimizers, self._step_ended)
            self.history = History(meter.modules)
            if self.out:
                try:
                    os.makedirs(self.out, exist_ok=True)
                    self._add_rows([(*COLUMNS, *meter.modules)], "w")
                except OSError as error:
                    what = "is a file; give a folder" if os.path.isfile(self.out) else reason_of(error)
                    raise OutputError(f"cannot write to out={self.out!r}: {what}") from error
            self._until.enter_context(meter.watching())
            self._until.callback(self._tap.close)
            self._look_if_due()
            self._listen()
        except BaseException:
            self._until.close()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close(error)

    def close(self, error: BaseException | None = None) -> None:
        """End the watch, for callers that cannot use a `with`. A second call does nothing."""
        if self._meter is None:
            return
        try:
            self._end_look()
            self._read()
            if error is None and not self.steps:
                _log.warning("gradviz.watch: %s", _UNSEEN)
        finally:
            self._until.close()
            self._meter, self._optimizers = None, ()
        self.page.ended = f"ended by {reason_of(error)}" if error is not None else "ended"
        self._write()
        if error is None:
            self._raise_if_wrong()

    # -- while it runs --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """A step is over that no optimizer took: for code that updates parameters itself."""
        if self._meter is not None:
            self._meter.step_by_hand()

    def _backward(self, call: EngineCall) -> Afterwards | None:
        if self._meter is None or not self._meter.is_here():
            return None
        self._meter.backward(call)
        if self._look is not None and self._look.is_over:
            self._end_look()
            self._raise_if_wrong()
        then = self._guarded(partial(self._look.backward, call)) if self._look is not None else None
        return partial(self._engine_ended, then)

    def _engine_ended(self, then: Afterwards | None, filled: bool | None) -> None:
        if then is not None:
            self._guarded(partial(then, filled))
        self._look_if_due()

    def _step_ended(self) -> None:
        """An optimizer has taken its step."""
        if self._meter is None:
            return
        self.steps = self.page.steps = self._meter.step
        if self._look is not None and self._meter.is_between and self.steps >= self._look.step + self._span - 1:
            self._end_look()
            self._raise_if_wrong()
        if len(self._meter.rows) >= SIZE:
            self._read()
        self._look_if_due()
        self._listen()

    def _listen(self) -> None:
        """Have backward calls told only while somebody wants to know of them: that takes time."""
        wanted = self._look is not None or bool(self._meter and self._meter.due)
        if wanted != self._listens:
            self._listens = wanted
            self._tap.close()
            if wanted:
                self._tap.enter_context(watching_backward(self._backward))

    def _look_if_due(self) -> None:
        """Begin a look between two steps, outside of any backward."""
        meter = self._meter
        if meter is None or meter.step + 1 < self._next or self._look is not None or not meter.is_between:
            return
        if torch._C._current_graph_task_id() != -1:
            return
        step = meter.step + 1
        self._next = (step // self._every + 1) * self._every
        self._read()
        self._raise_if_wrong()
        if self._budget.left:
            known = [one for one in meter.names if isinstance(one, torch.optim.Optimizer)]
            first = self.looks[0] if self.looks else None
            self._look = OpenLook(meter.model, known or self._optimizers, step, self.page.name, first, self._span)
            self._guarded(self._look.begin)
        else:
            self._thrifty += 1
            self._notes["looks"] = (
                f"{plural(self._thrifty, 'look')} left out: all after the first one may take 1 s and 0.2 % of the run"
            )

    def _end_look(self) -> None:
        look, self._look = self._look, None
        if look is None:
            return
        look.close()
        seen: StepLook | None = self._guarded(look.result)
        if seen is None:
            return
        known = {(finding.id, finding.names) for finding in self.findings}
        for one in seen.findings:
            if one.severity != "note" and (one.id, one.names) not in known:
                _log.warning("gradviz.watch, step %s: %s: %s [%s]", seen.step, one.severity, one.summary, one.id)
        self.looks.append(seen)
        self._guarded(partial(self.page.add, seen))
        self._write()
        if len(self.looks) == 1:
            self._budget = Budget(_FREE, _SHARE)

    def _guarded(self, action: Callable[[], Any]) -> Any:
        """What an action returns. An error of ours is noted, and must not end the user's run."""
        try:
            with self._budget:
                return action()
        except Exception as error:
            if signalled(error):
                raise
            self._notes[reason_of(error)] = f"not complete: {reason_of(error)}"
            return None

    # -- what is read and written ---------------------------------------------------------------------------------------

    def _read(self) -> None:
        """Bring the numbers of the last steps from the device, and add them to the table."""
        meter = self._meter
        if meter is None:
            return
        steps, fine = self._guarded(meter.read) or [], self.history.broken is None
        self.history.add(steps)
        self._guarded(partial(self._add_rows, [step.cells() for step in steps]))
        if fine and self.history.broken is not None:
            _log.warning("gradviz.watch: %s", self.history.breaks())
        lost = (
            (
                meter.unmeasured,
                "step",
                "only counted: noting the numbers of all steps may take 0.1 s and 0.9 % of the run",
            ),
            (meter.elsewhere, "optimizer step", "in other threads or processes not noted"),
        )
        self._notes |= {noun: f"{plural(count, noun)} {what}" if count else "" for count, noun, what in lost}
        self._notes["run"] = "" if meter.step else _UNSEEN

    def _add_rows(self, rows: Sequence[Sequence[str]], mode: str = "a") -> None:
        if self.out and rows:
            with open(os.path.join(self.out, TABLE), mode, encoding="utf-8", newline="") as table:
                csv.writer(table, lineterminator="\n").writerows(rows)

    def _write(self) -> None:
        if self.out:
            self._guarded(partial(self._save, os.path.join(self.out, PAGE)))

    def _save(self, path: str | os.PathLike[str]) -> None:
        write(path, map(encode, self.page.pieces(self.history, self.looks, [*filter(None, self._notes.values())])))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page, one file that needs no other. Inside the `with` it waits for the device."""
        self._read()
        self._save(path)

    def numbers(self) -> dict[str, float]:
        """The numbers of the last step and the last look, by names that any logger takes. It waits for the device.

        >>> import torch, gradviz
        >>> net = torch.nn.Linear(2, 1)
        >>> with gradviz.watch(net) as watch:
        ...     net(torch.ones(1, 2)).sum().backward()
        ...     torch.optim.SGD(net.parameters(), lr=0.1).step()
        >>> sorted(watch.numbers())
        ['findings', 'grad_norm', 'grad_norms/Linear', 'loss', 'nodes', 'saved_bytes', 'step']
        """
        self._read()
        found: dict[str, float | None] = {"step": 0, **self.history.numbers()}
        for look in self.looks[-1:]:
            found |= {"nodes": look.nodes, "saved_bytes": look.nbytes, "findings": len(look.findings)}
        return {name: float(value) for name, value in found.items() if value is not None}

    def _raise_if_wrong(self) -> None:
        """End the run if it was asked for, and the last look or a number is a reason to."""
        if self._raise_on is None:
            return
        wrong = self.history.breaks()
        for look in self.looks[-1:] if not wrong else ():
            if look.findings.reach(self._raise_on):
                worst = look.findings[0]
                lines = (f"step {look.step}: {worst.summary} [{worst.id}]", worst.where, f"fix: {worst.fix}")
                wrong = "\n".join(filter(None, lines))
        if wrong:
            raise WatchError(f"{wrong}\nsee {os.path.join(self.out, PAGE)}" if self.out else wrong)
