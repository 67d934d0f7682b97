"""What watches the calls of torch while a script runs, for the commands that say which
line cut the graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gradviz.features import hook


@contextmanager
def watched(target: str, *arguments: Any) -> Iterator[list[Any]]:
    """Around the script: what `target` (`module:name`) makes watches the calls of
    torch, from the moment torch is there.

    Nothing does where its feature is not there.
    """
    from gradviz.run.engine import when_imported

    watchers: list[Any] = []

    def begin() -> None:
        make = hook(target)
        if make is not None:
            watchers.append(make(*arguments))
            until.enter_context(watchers[0].watching())

    with ExitStack() as until, when_imported("torch", begin):
        yield watchers
