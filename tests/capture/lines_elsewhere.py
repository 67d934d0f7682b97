"""Run by a test with another Python than its own: needs neither pytest nor torch."""

from __future__ import annotations

import sys
from collections.abc import Iterator

sys.path.insert(0, sys.argv[1])

from gradviz.capture.lines import UserCode, watcher
from gradviz.capture.steps import Steps
from gradviz.graph import SourceLine

made: list[tuple[int, str]] = []
scope = {"made": made, "sys": sys}
library = "def make():\n    f = sys._getframe(1)\n    made.append((f.f_lineno, f.f_code.co_name))"
exec(compile(library, "/library/code.py", "exec"), scope)
make = scope["make"]
steps: Steps[SourceLine] = Steps(0)
watching = watcher(UserCode(["/library"]), lambda: len(made), lambda: steps)


def inner() -> None:
    make()
    return make()


def generator() -> Iterator[int]:
    make()
    _ = (yield 1), make()
    try:
        yield 2
    except ValueError:
        make()


def fail() -> None:
    make()
    raise KeyError


def main() -> None:
    watching.start(sys._getframe())
    make(), inner(), make()
    [make() for _ in range(2)]
    running = generator()
    next(running), make()
    next(running), make()
    try:
        running.throw(ValueError)
    except StopIteration:
        make()
    try:
        fail()
    except KeyError:
        make()
    (lambda: make())(), make(), make()
    watching.stop(sys._getframe(), True)


main()
noted = [steps.at(number) for number in range(len(made))]
# A comprehension is a function of its own before Python 3.12 only.
right = [(line.line, line.function) if line else None for line in noted] == made
assert all(sys.monitoring.get_tool(tool) is None for tool in range(6))
print(type(watching).__name__, len(made), "right" if right else f"wrong: {noted} {made}")
