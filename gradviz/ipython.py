"""IPython's `%load_ext gradviz`: `%%gradviz` over a cell shows what the cell led to, `%gradviz` answers about a variable.

A cell runs once and to its end, as it does without the first line, under a recording. Its graph is read at its first backward
call; without one, when it has ended. What the cell raises goes to IPython, which shows it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from gradviz.errors import GradvizError, did_you_mean
from gradviz.graph import Graph
from gradviz.run.ending import users_part
from gradviz.run.program import Target

_FIRST_LINE = "# %%gradviz\n"  # so that lines count as they do in the notebook
_WHY = "%gradviz why NAME"


def load(shell: Any) -> None:
    """Add both to a shell of IPython."""
    shell.register_magic_function(lambda line, cell=None: gradviz(shell, line, cell), "line_cell", "gradviz")


def unload(shell: Any) -> None:
    """Take both away."""
    for magics in shell.magics_manager.magics.values():
        magics.pop("gradviz", None)


def gradviz(shell: Any, line: str, cell: str | None) -> Any:
    """What `%gradviz line` or `%%gradviz line` over a cell does. Raises IPython's UsageError, which it shows as one line."""
    from IPython.core.error import UsageError

    try:
        return _shown(shell, _answer(line, shell)) if cell is None else _over_cell(shell, line.split(), cell)
    except GradvizError as error:
        raise UsageError(str(error)) from None


# -- over a cell -------------------------------------------------------------------------------------------------------


class _Cell:
    """The code under `%%gradviz`. `value` is that of its last line, where that is an expression."""

    def __init__(self, shell: Any, text: str) -> None:
        self._shell, self._text = shell, text
        self.namespace: dict[str, Any] = shell.user_ns
        self.made: dict[str, Any] = {}
        self.value: object = None
        self.number = (
            len(shell.history_manager.input_hist_parsed) - 1
        )  # the shell's own counts on before a cell has run

    def run(self) -> None:
        """Run it as `%%time` does: IPython's own compiler, transformations and display of the last value."""
        shell = self._shell
        code = shell.transform_cell(_FIRST_LINE + self._text)
        file = shell.compile.cache(code, self.number, raw_code=_FIRST_LINE + self._text)
        tree = shell.transform_ast(shell.compile.ast_parse(code, filename=file))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        before = dict(self.namespace)
        exec(shell.compile(tree, file, "exec"), self.namespace)
        if last is not None:
            self.value = eval(shell.compile(ast.Expression(last.value), file, "eval"), self.namespace)
        new = {name: value for name, value in self.namespace.items() if before.get(name) is not value}
        self.made = {"output": self.value} | new


def _over_cell(shell: Any, words: list[str], text: str) -> object:
    show = _VIEWS.get(" ".join(words) or "--picture")
    if show is None:
        raise GradvizError(
            f"%%gradviz does not know {' '.join(words)!r}. {did_you_mean(words[0], _VIEWS, what='options')}"
        )
    cell = _Cell(shell, text)
    target = Target("cell", f"cell {cell.number}", cell=cell)
    result, error = (_checked if show is _VIEWS["--check"] else _read)(target)
    if result is not None:
        _shown(shell, show(result))
    if error is not None:
        raise error.with_traceback(users_part(error.__traceback__))
    return None if text.rstrip().endswith(";") else cell.value


def _shown(shell: Any, result: object) -> None:
    """Show a result: as a display of its own in a notebook, printed in a terminal, where it would be one line."""
    from IPython.core import display_functions

    display: Any = display_functions.display
    (display if hasattr(shell, "kernel") else print)(result)


def _read(target: Target) -> tuple[Graph | None, BaseException | None]:
    """The graph of a cell, None where it failed before there was one, and what it raised."""
    from gradviz.cli.why import cuts_watched
    from gradviz.run.run import Run, read_graph

    nothing = Graph()
    with cuts_watched(parts=True) as cuts:
        captured = Run(target, lambda live: read_graph(live, cuts), keep_going=True, nothing=nothing).captured()
    error = captured.failure.error if captured.failure is not None else None
    return None if captured.result is nothing else captured.result, error


def _checked(target: Target) -> tuple[Any, BaseException | None]:
    """The findings of a cell, and what it raised."""
    from gradviz.checks.check import check_target

    captured = check_target(target, keep_going=True)
    return captured.result, captured.failure.error if captured.failure is not None else None


# -- what is shown -----------------------------------------------------------------------------------------------------


def _page(graph: Graph) -> object:
    from gradviz.notebook import show

    return show(graph)


def _saved(graph: Graph) -> object:
    from gradviz.memory.saved import saved

    return saved(graph)


_VIEWS: Mapping[str, Callable[[Any], object]] = {
    "--picture": lambda graph: graph,
    "--page": _page,
    "--tree": Graph.tree,
    "--saved": _saved,
    "--check": lambda findings: findings,
}
"""What `%%gradviz` shows of a graph, or of findings."""


def _answer(line: str, shell: Any) -> object:
    """`%gradviz why NAME`: for the tensors of the notebook that no other one depends on."""
    from gradviz.cli.why import explained
    from gradviz.run.outputs import LiveOutputs, final_tensors

    words = line.split()
    if len(words) != 2 or words[0] != "why":
        raise GradvizError(
            f"{_WHY} says why a tensor gets a gradient, or none. %%gradviz goes over a cell, as its first line."
        )
    own = {
        name: value
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in shell.user_ns_hidden
    }
    outputs = final_tensors(own, "this notebook", 0)
    live = LiveOutputs(list(outputs.values()), [own], "", tuple(outputs))
    return explained(live, words[1], "this notebook")
