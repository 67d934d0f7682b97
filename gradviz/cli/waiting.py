"""Says on a terminal what a script is run for while it runs, and that its graph is read
when it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from gradviz.cli.launch import reports
from gradviz.cli.progress import Waiting, progress
from gradviz.wording import one_line

FIRST_CALL, FIRST_STEP, END = (
    "until its first backward()",
    "until its first optimizer step",
    "to its end",
)
"""What a script is run for."""


def reading() -> AbstractContextManager[object]:
    """Shows how far it is while a graph is read."""
    return progress("reading the graph")


@contextmanager
def waiting(
    script: str,
    until: str,
    then: str,
) -> Iterator[Callable[[], AbstractContextManager[object]]]:
    """Around the run of a script, which goes on for `then` after each reading. Yields
    what goes around a reading.
    """
    if not reports():
        until = then = ""
    script, waits = one_line(script), Waiting()

    @contextmanager
    def around_reading() -> Iterator[object]:
        waits.end()
        with reading() as line:
            yield line
        waits.begin(script, then)

    waits.begin(script, until)
    try:
        yield around_reading
    finally:
        waits.end()
