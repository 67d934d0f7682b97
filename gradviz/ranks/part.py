"""What a process does in a command that looks at one program: it shows what it read, or leaves that for the report of all ranks.

A rank that takes part reads as always, leaves the result in the rendezvous's folder, and waits. Local rank 0 starts the process
that reports for all; should it be gone, another one does.
"""

from __future__ import annotations

import io
import json
import math
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click

from gradviz.cli.role import Read, Role
from gradviz.errors import GradvizError, reason_of
from gradviz.ranks.calls import last_call, recorded_calls
from gradviz.ranks.rendezvous import (
    GRAPH,
    INCOMPLETE,
    LAUNCH,
    POLL,
    Quiet,
    Rendezvous,
    alive,
    read,
    rendezvous,
    used,
    write,
)
from gradviz.run.engine import microbatch_of

if TYPE_CHECKING:
    from gradviz.checks.finding import Findings
    from gradviz.graph import Graph
    from gradviz.run.ending import RunResult
    from gradviz.run.outputs import LiveOutputs

MERGED = {"render": "graph", "tree": "graph", "check": "findings"}
"""Commands that show one graph, or one list of findings, for all ranks; by what the ranks must have left."""


class HandedIn(BaseException):
    """Ends a command in one rank: what it would show is shown for all ranks together."""


@dataclass
class RankRole(Role):
    """It is one of several that are reported together. `files` are what it has left, by what they are."""

    rendezvous: Rendezvous
    command: str
    files: dict[str, str] = field(default_factory=dict)
    left: int = 0  # backward calls to come that this rank reads; 0 when it does not stop at one
    unread: int | None = None  # microbatches of the step that this rank still reads
    stops: bool = False
    ready: bool = False  # it has read them
    whole: bool = False  # the script runs to its end

    def file(self, path: str, asked: bool) -> str:
        return path if self.command in MERGED else super().file(path, asked)

    def runs_on(self, keep_going: bool, calls: int | None) -> bool:
        """The script goes on after what is read, and stops when every rank has read as many backward calls.

        A rank that stopped at once would never send the gradient that another one waits for, as in a pipeline.
        """
        if calls and not keep_going:
            self.left, self.stops = calls, True
        self.whole = keep_going or calls is not None
        return self.whole

    def gate(self, fills: bool, mark: Callable[[str], None]) -> None:
        """Called before each call of backward or `torch.distributed`. Raises Stopped when the script need not go on."""
        if self.left and fills:
            self.left -= 1
        if self.stops and not self.ready and not (self.left if self.unread is None else self.unread):
            self.rendezvous.write("ready", {"at": time.monotonic()})
            self.ready = True
        if not self.ready:
            return
        mark("held")
        if may_stop(self.rendezvous):
            from gradviz.run.ending import Stopped

            self.whole = False
            raise Stopped
        mark("go")

    def reads(self, read: Read, whole_step: bool) -> Read:
        """Leave each graph for the others before the script goes on."""
        own = super().reads(read, whole_step)

        def leaving(live: LiveOutputs) -> Graph:
            graph = own(live)
            if self.unread is None:  # of a step's microbatches, the first one counts
                self.files.pop("graph", None)  # a later call may take the place of an earlier one
                self.seen(graph)
            microbatch = microbatch_of(live.frame) if whole_step else None
            if microbatch is not None:
                self.unread = microbatch.count - microbatch.number - 1
            return graph

        return leaving

    def seen(self, graph: Graph) -> None:
        """Leave a graph for the others, at once: this rank may hang or die in what comes next. The first one counts."""
        from gradviz.draw.output import save

        if "graph" not in self.files:
            self.files["graph"] = save(graph, self.rendezvous.path(GRAPH))

    def leave_graph(self, captured: RunResult[Graph]) -> None:
        """Leave the graph. Raises HandedIn when there is nothing more to do in this rank."""
        self.files.pop("graph", None)
        self.seen(captured.result)
        self._hand_in(captured)

    def leave_findings(self, captured: RunResult[Findings]) -> None:
        """Leave what was found. Raises HandedIn, likewise."""
        self.files["findings"] = self.rendezvous.path("findings")
        with open(self.files["findings"], "wb") as file:
            pickle.dump(replace(captured.result, graphs=()), file)
        self._hand_in(captured)

    def _hand_in(self, captured: RunResult[Any]) -> None:
        if self.command in MERGED:
            captured.raise_failure()
            raise HandedIn


# -- stopping a script that others may wait for ------------------------------------------------------------------------

_BLOCKED = 0.5  # seconds in one call after which a rank is taken to wait
_LONGEST = 600.0


def may_stop(rendezvous: Rendezvous) -> bool:
    """Wait until every other rank has read its graph, too, or has ended: then True. False when all that have not wait in a call.

    Then this rank must go on, since one of them may wait for it, unless another one is nearer to them: the one that was ready
    last. So a rank gets no further than it must, and does not begin to wait itself for one that has stopped. Who uses the
    processor, or waits for its turn on a busy machine, does not wait in a call.
    """
    began, quiet = time.monotonic(), Quiet()
    own = _ready(rendezvous, rendezvous.rank.number) or 0.0
    while time.monotonic() - began < _LONGEST:
        others = [
            rank for rank in rendezvous.ranks if rank != rendezvous.rank.number and not _has_ended(rendezvous, rank)
        ]
        ready = {rank: at for rank in others if (at := _ready(rendezvous, rank)) is not None}
        if len(ready) == len(others):
            return True
        before = [rank for rank in others if ready.get(rank, math.inf) > own]
        waiting = [_waits(rendezvous, rank, quiet) for rank in before]  # looked at by turns, so each at every turn
        if all(waiting):
            return False
        time.sleep(POLL)
    return True


def _waits(rendezvous: Rendezvous, rank: int, quiet: Quiet) -> bool:
    """Whether a rank has been in one call for a while and done nothing."""
    size, call = last_call(rendezvous.path("calls", rank))
    start = rendezvous.read("start", rank)
    spent = used(start["pid"]) if start is not None else None
    seconds = quiet.seconds(rank, (size, time.monotonic() if spent is None else spent))  # who runs is never as before
    return call is not None and not call.get("held") and seconds > _BLOCKED


def _ready(rendezvous: Rendezvous, rank: int) -> float | None:
    """When a rank had read its graph, None while it has not."""
    told = rendezvous.read("ready", rank)
    return float(told["at"]) if told is not None else None


def _has_ended(rendezvous: Rendezvous, rank: int) -> bool:
    start = rendezvous.read("start", rank)
    return os.path.exists(rendezvous.path("end", rank)) or (start is not None and not alive(start["pid"]))


# -- from the beginning of a command to the report ---------------------------------------------------------------------

_NOBODY = 10.0  # seconds after which another rank begins to report, if nobody does
_START = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); from gradviz.ranks.reporter import main; main()"


def one_of_several(context: click.Context, run: Callable[[click.Context], Any], merged: bool, wait: float) -> Any:
    """Run the command in one of several processes: for a `merged` report of all, where they meet, else for this one."""
    place = rendezvous() if merged else None
    if place is not None:
        return context.exit(_take_part(place, context, run, wait))
    with recorded_calls():
        return run(context)


def _take_part(rendezvous: Rendezvous, context: click.Context, run: Callable[[click.Context], Any], wait: float) -> int:
    """Run the command for this rank and leave what it says. Returns the exit code of the report, when that is written."""
    from gradviz.cli.streams import captured_result

    rendezvous.open()
    reporter = _start(rendezvous, wait) if rendezvous.rank.number == rendezvous.ranks[0] else None
    part = context.obj = RankRole(rendezvous, context.info_name or "")
    text = io.BytesIO()
    end: dict[str, Any] = {"code": 0, "problem": ""}
    try:
        with captured_result(text), recorded_calls(rendezvous.path("calls"), part.gate):
            run(context)
    except HandedIn:
        pass
    except click.exceptions.Exit as error:
        end["code"] = error.exit_code
    except SystemExit as error:
        end["code"] = error.code if isinstance(error.code, int) else 1
    except GradvizError as error:
        end |= {"code": error.exit_code, **_failure(error)}
    except Exception as error:
        end |= {"code": 1, "problem": reason_of(error)}
        rendezvous.write("end", end)
        _wait(rendezvous, reporter, wait)
        raise
    end |= {"text": text.getvalue().decode("utf-8", "replace"), "whole": part.whole, **part.files}
    rendezvous.write("end", end)
    return _wait(rendezvous, reporter, wait)


def _failure(error: GradvizError) -> dict[str, Any]:
    """What went wrong: our own words, or the script's exception and its line."""
    cause = error.__cause__
    if cause is None or isinstance(cause, GradvizError):
        return {"problem": str(error)}
    from gradviz.checks.collect.lines import raised

    told = raised(cause)
    return {"problem": str(error) or reason_of(cause), "failed": reason_of(cause), "source": told.source}


def _start(rendezvous: Rendezvous, wait: float) -> subprocess.Popen[bytes] | None:
    """Start the process that reports, unless another rank has. It outlives this one, whatever becomes of it."""
    lock = _lock(rendezvous)
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    started = subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path), json.dumps([rendezvous, wait, sys.argv[1:]])],
        stdin=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if name not in LAUNCH},
        start_new_session=True,
    )
    write(lock, {"pid": started.pid})
    return started


def _lock(rendezvous: Rendezvous) -> str:
    """The file that says that somebody reports, and which process."""
    return os.path.join(rendezvous.folder, "reporter")


def _wait(rendezvous: Rendezvous, reporter: subprocess.Popen[bytes] | None, wait: float) -> int:
    """Wait until the report is written, and return the exit code that this rank should have."""
    began = time.monotonic()
    while True:
        if reporter is not None and reporter.poll() is not None:
            return reporter.returncode
        told = read(os.path.join(rendezvous.folder, "done"))
        if reporter is None and (told is not None or not os.path.isdir(rendezvous.folder)):
            return int(told["others"]) if told is not None else 0
        if reporter is None and time.monotonic() - began > _NOBODY:
            began = time.monotonic()
            told = read(_lock(rendezvous))
            if told is not None and not alive(told["pid"]):  # nobody reports
                return INCOMPLETE
            first = rendezvous.read("start", rendezvous.ranks[0])
            if first is None or not alive(first["pid"]):
                reporter = _start(rendezvous, wait)
        time.sleep(POLL)
