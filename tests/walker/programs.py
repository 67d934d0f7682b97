"""Random small programs in which every operation carries the number of its own line.

`torch.add(x, x, alpha=17)` stands in line 17, and autograd keeps the 17: a fact that no tracing has part in.
"""

from __future__ import annotations

from random import Random

_HEAD = """\
import threading
import torch

x = torch.ones(1, requires_grad=True)
kept = []

class Gate:
    def __enter__(self):
        kept.append({op})

    def __exit__(self, *error):
        kept.append({op})
        return True

def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


class Program:
    """Writes one program, statement by statement. `text` is the whole."""

    def __init__(self, seed: int, threads: bool = False) -> None:
        self._chance, self._threads = Random(seed), threads
        self._lines: list[str] = []
        self._names = 0
        for line in _HEAD.splitlines():
            self._write(0, line)
        for _ in range(8):
            self._statement(0, 3)

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _write(self, depth: int, line: str) -> None:
        number = len(self._lines) + 1
        self._lines.append("    " * depth + line.replace("{op}", f"torch.add(x, x, alpha={number})"))

    def _name(self) -> str:
        self._names += 1
        return f"name{self._names}"

    def _block(self, depth: int, room: int) -> None:
        for _ in range(self._chance.randint(1, 2)):
            self._statement(depth, room - 1)

    def _statement(self, depth: int, room: int) -> None:
        simple = [self._keep, self._several_lines, self._comprehension, self._lambda, self._nothing]
        nested = [self._loop, self._function, self._generator, self._error, self._with, self._without_grad]
        if self._threads:
            nested.append(self._thread)
        self._chance.choice(simple if room <= 0 else [*simple, *nested, *nested])(depth, room)

    def _keep(self, depth: int, room: int) -> None:
        self._write(depth, "kept.append({op})")

    def _nothing(self, depth: int, room: int) -> None:
        self._write(depth, "sum(number for number in range(50))")

    def _several_lines(self, depth: int, room: int) -> None:
        for line in ("kept.extend([", "    {op},", "    *[{op}", "      for _ in range(2)],", "    {op}])"):
            self._write(depth, line)

    def _comprehension(self, depth: int, room: int) -> None:
        self._write(depth, "kept += [{op} for _ in range(2) if kept.append({op}) is None]")

    def _lambda(self, depth: int, room: int) -> None:
        name = self._name()
        self._write(depth, f"{name} = lambda: kept.append({{op}})")
        self._write(depth, f"{name}(), kept.append({{op}}), {name}()")

    def _loop(self, depth: int, room: int) -> None:
        self._write(depth, f"for {self._name()} in range({self._chance.choice([1, 3, 40])}):")
        self._block(depth + 1, room)

    def _function(self, depth: int, room: int) -> None:
        name = self._name()
        self._write(depth, f"def {name}():")
        self._write(depth + 1, "global kept")
        self._block(depth + 1, room)
        self._write(depth + 1, "return {op}")
        self._write(depth, f"kept.append({name}())")

    def _generator(self, depth: int, room: int) -> None:
        name = self._name()
        self._write(depth, f"def {name}():")
        self._write(depth + 1, "global kept")
        self._write(depth + 1, "yield {op}")
        self._write(depth + 1, "kept.append((yield {op})), kept.append({op})")
        self._block(depth + 1, room)
        self._write(depth, f"for value in {name}():")
        self._write(depth + 1, "kept += [value, {op}]")

    def _error(self, depth: int, room: int) -> None:
        self._write(depth, "try:")
        self._block(depth + 1, room)
        self._write(depth + 1, "kept.append({op} @ torch.ones(2, 2, 2, 2))" if room > 1 else "raise KeyError({op})")
        self._write(depth, "except (KeyError, RuntimeError):")
        self._write(depth + 1, "kept.append({op})")
        self._write(depth, "finally:")
        self._write(depth + 1, "kept.append({op})")

    def _with(self, depth: int, room: int) -> None:
        self._write(depth, "with Gate():")
        self._block(depth + 1, room)
        self._write(depth + 1, "raise KeyError")

    def _without_grad(self, depth: int, room: int) -> None:
        self._write(depth, "with torch.no_grad():")
        self._block(depth + 1, room)

    def _thread(self, depth: int, room: int) -> None:
        name = self._name()
        self._write(depth, f"def {name}():")
        self._write(depth + 1, "global kept")
        self._block(depth + 1, room)
        self._write(depth, f"in_thread({name})")
