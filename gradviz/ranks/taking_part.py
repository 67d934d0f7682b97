"""What one rank does when several run one command: it reads as always, leaves the result in the meeting's folder, and waits.

Local rank 0 starts the process that reports for all; should it be gone, another one does. Knows no graph.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import click

from gradviz.errors import GradvizError, reason_of
from gradviz.ranks.meeting import (
    LAUNCH,
    Meeting,
    alive,
    read,
    write,
)
from gradviz.ranks.part import HandedIn, Part

_POLL = 0.05  # seconds
_INCOMPLETE = 3
_NOBODY = 10.0  # seconds after which another rank begins to report, if nobody does
_START = "import sys, json; sys.path[:] = json.loads(sys.argv.pop(1)); from gradviz.ranks.reporter import main; main()"


Captured = Callable[[BinaryIO], AbstractContextManager[None]]
"""Has what the command prints as its result written to a buffer."""


def take_part(
    meeting: Meeting, context: click.Context, run: Callable[[click.Context], Any], captured: Captured, wait: float
) -> int:
    """Run the command for this rank and leave what it says. Returns the exit code of the report, when that is written."""
    from gradviz.ranks.calls import recorded_calls

    meeting.open()
    reporter = _start(meeting, wait) if meeting.local == 0 else None
    part = context.obj = Part(meeting, context.info_name or "")
    text = io.BytesIO()
    end: dict[str, Any] = {"code": 0, "problem": ""}
    try:
        with captured(text), recorded_calls(meeting.path("calls"), part.gate):
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
        meeting.write("end", end)
        _wait(meeting, reporter, wait)
        raise
    end |= {"text": text.getvalue().decode("utf-8", "replace"), "whole": part.whole, **part.files}
    meeting.write("end", end)
    return _wait(meeting, reporter, wait)


def _failure(error: GradvizError) -> dict[str, Any]:
    """What went wrong: our own words, or the script's exception and its line."""
    cause = error.__cause__
    if cause is None or isinstance(cause, GradvizError):
        return {"problem": str(error)}
    from gradviz.checks.collect.lines import raised

    told = raised(cause)
    return {"problem": str(error) or reason_of(cause), "failed": reason_of(cause), "source": told.source}


def _start(meeting: Meeting, wait: float) -> subprocess.Popen[bytes] | None:
    """Start the process that reports, unless another rank has. It outlives this one, whatever becomes of it."""
    lock = _lock(meeting)
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return None
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCH}
    told = json.dumps({"ranks": meeting.ranks, "wait": wait, "arguments": sys.argv[1:], "folder": meeting.folder})
    started = subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path), told],
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    )
    write(lock, {"pid": started.pid})
    return started


def _lock(meeting: Meeting) -> str:
    """The file that says that somebody reports, and which process."""
    return os.path.join(meeting.folder, "reporter")


def _nobody_reports(meeting: Meeting) -> bool:
    told = read(_lock(meeting))
    return told is not None and not alive(told["pid"])


def _wait(meeting: Meeting, reporter: subprocess.Popen[bytes] | None, wait: float) -> int:
    """Wait until the report is written, and return the exit code that this rank should have."""
    began = time.monotonic()
    done = os.path.join(meeting.folder, "done")
    while True:
        if reporter is not None and reporter.poll() is not None:
            return reporter.returncode
        told = read(done)
        if reporter is None and (told is not None or not os.path.isdir(meeting.folder)):
            return int(told["others"]) if told is not None else 0
        if reporter is None and time.monotonic() - began > _NOBODY:
            began = time.monotonic()
            if _nobody_reports(meeting):
                return _INCOMPLETE
            first = read(meeting.path("start", meeting.ranks[0]))
            if first is None or not alive(first["pid"]):
                reporter = _start(meeting, wait)
        time.sleep(_POLL)
