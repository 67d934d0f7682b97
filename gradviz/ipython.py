"""IPython's `%load_ext gradviz`: `%%gradviz` over a cell shows what the cell led to,
`%gradviz` answers about a variable.

A cell runs once and to its end, as it does without the first line, under a recording.
Its graph is read at its first backward call; without one, when it has ended. What the
cell raises goes to IPython, which shows it, and what it has no graph for is said beside
its result.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from gradviz.errors import GradvizError, did_you_mean
from gradviz.features import load as feature
from gradviz.graph import Graph
from gradviz.run.ending import RunResult, users_part
from gradviz.run.target import Target

_FIRST_LINE = "# %%gradviz\n"  # so that lines count as they do in the notebook
_WHY = "%gradviz why NAME"


def load(shell: Any) -> None:
    """Add both to a shell of IPython."""
    shell.register_magic_function(
        lambda line, cell=None: gradviz(shell, line, cell), "line_cell", "gradviz"
    )


def unload(shell: Any) -> None:
    """Take both away."""
    for magics in shell.magics_manager.magics.values():
        magics.pop("gradviz", None)


def gradviz(shell: Any, line: str, cell: str | None) -> Any:
    """What `%gradviz line` or `%%gradviz line` over a cell does. Raises IPython's
    UsageError, which it shows as one line.
    """
    from IPython.core.error import UsageError

    if {*line.split()} & {"--help", "-h", "-?"}:
        print(_help())
        return None
    try:
        if cell is None:
            return _shown(shell, _answer(line, shell))
        return _over_cell(shell, line, cell)
    except GradvizError as error:
        raise UsageError(str(error)) from None


# -- over a cell -----------------------------------------------------------------------


class _Cell:
    """The code under `%%gradviz`. `value` is that of its last line, where that is an
    expression.
    """

    def __init__(self, shell: Any, text: str) -> None:
        self._shell, self._text = shell, text
        self.namespace: dict[str, Any] = shell.user_ns
        self._before: dict[str, Any] = {}
        self.value: object = None
        self.ended = False
        # the shell's own counts on before a cell has run
        self.number = len(shell.history_manager.input_hist_parsed) - 1

    def run(self) -> None:
        """Run it statement by statement: IPython's own compiler, transformations and
        display of the last value.
        """
        compiler, text = self._shell.compile, _FIRST_LINE + self._text
        code = self._shell.transform_cell(text)
        file = compiler.cache(code, self.number, raw_code=text)
        tree = self._shell.transform_ast(compiler.ast_parse(code, filename=file))
        is_shown = tree.body and isinstance(tree.body[-1], ast.Expr)
        last = tree.body.pop() if is_shown else None
        codes = [compiler(ast.Module([node], []), file, "exec") for node in tree.body]

        # what the cell has assigned is told by comparing with this
        self._before = dict(self.namespace)
        for code in codes:
            exec(code, self.namespace)
        if last is not None:
            expression = compiler(ast.Expression(last.value), file, "eval")
            self.value = eval(expression, self.namespace)
        self.ended = True

    @property
    def made(self) -> dict[str, Any]:
        """The value of the last line and the variables that the cell gave a value to,
        up to where it is.
        """
        new = {
            name: value
            for name, value in self.namespace.items()
            if self._before.get(name) is not value
        }
        return {"output": self.value} | new


def _over_cell(shell: Any, line: str, text: str) -> object:
    view = _view(line.strip() or "--picture")
    cell, error = _Cell(shell, text), None
    target = Target("cell", f"cell {cell.number}", cell=cell)

    try:
        captured = (_checked if view is _VIEWS["--check"] else _read)(target)
        if captured.failure is not None:
            error = captured.failure.error
        if captured.result is not _NOTHING:
            _shown(shell, view.show(captured.result))
    except GradvizError as refused:
        # the cell itself must not seem to have run
        if not cell.ended:
            raise
        print(f"gradviz: {refused}", file=sys.stderr)
    except KeyboardInterrupt as interrupt:
        error = interrupt

    if error is not None:
        raise _with_users_part(error, shell)

    # as IPython does
    return None if text.rstrip().endswith(";") else cell.value


def _view(words: str) -> _Shown:
    """What the first line asks for. Raises GradvizError that lists what there is."""
    if words in _VIEWS:
        return _VIEWS[words]

    unknown = [word for word in words.split() if word not in _VIEWS]
    if not unknown:
        options = ", ".join(_VIEWS)
        raise GradvizError(f"%%gradviz takes one option at a time: {options}.")

    hint = did_you_mean(unknown[0], _VIEWS, what="options")
    raise GradvizError(f"%%gradviz does not know {unknown[0]!r}. {hint}")


def _help() -> str:
    lines = [f"%%gradviz {name:<11}{view.help}" for name, view in _VIEWS.items()]
    lines.append(f"{_WHY:<21} why a tensor gets a gradient, or none")
    return "\n".join(["As the first line of a cell, which does not run now:", *lines])


def _with_users_part(error: BaseException, shell: Any) -> BaseException:
    """The same, of which IPython shows the traceback from the cell's own line on: it
    asks an exception for its rendering.
    """
    traceback = users_part(error.__traceback__)
    with suppress(Exception):  # an exception class may refuse
        vars(error)["_render_traceback_"] = lambda: (
            shell.InteractiveTB.structured_traceback(
                type(error), error, traceback, tb_offset=0
            )
        )
    return error.with_traceback(traceback)


def _shown(shell: Any, result: object) -> None:
    """Show a result: as a display of its own in a notebook, printed in a terminal,
    where it would be one line.
    """
    from IPython.core import display_functions

    display: Any = display_functions.display
    (display if hasattr(shell, "kernel") else print)(result)


_NOTHING = Graph()
"""Of a cell that failed before it had a graph."""


def _read(target: Target) -> RunResult[Any]:
    """The graph of a cell, and what it raised."""
    from gradviz.run.reading import read_graph
    from gradviz.run.run import Run

    return Run(
        target,
        lambda live: read_graph(live, cuts=True),
        keep_going=True,
        nothing=_NOTHING,
    ).captured()


def _checked(target: Target) -> RunResult[Any]:
    """The findings of a cell, and what it raised."""
    from gradviz.checks.check import check_target

    return check_target(target, keep_going=True)


# -- what is shown ---------------------------------------------------------------------


class _Shown(NamedTuple):
    show: Callable[[Any], object]
    help: str


def _itself(result: object) -> object:
    return result


def _page(graph: Graph) -> object:
    return feature("gradviz.notebook:frame")(graph)


def _saved(graph: Graph) -> object:
    return feature("gradviz.memory.saved:saved")(graph)


_VIEWS: Mapping[str, _Shown] = {
    "--picture": _Shown(_itself, "the picture; the same without an option"),
    "--check": _Shown(_itself, "what is wrong, where, and how to fix it"),
    "--saved": _Shown(_saved, "memory held for backward, by line"),
    "--page": _Shown(_page, "the interactive page"),
    "--tree": _Shown(Graph.tree, "modules, ops and lines as text"),
}
"""What `%%gradviz` shows of a graph, or of findings."""


def _answer(line: str, shell: Any) -> object:
    """`%gradviz why NAME`: for the tensors of the notebook that no other one depends
    on.
    """
    from gradviz.cli.why import explained
    from gradviz.run.outputs import LiveOutputs, final_tensors

    words = line.split()
    if len(words) != 2 or words[0] != "why":
        raise GradvizError(
            f"{_WHY} says why a tensor gets a gradient, or none. %%gradviz goes over a cell, as its first line."
        )
    variables = {
        name: value
        for name, value in shell.user_ns.items()
        if not name.startswith("_") and name not in shell.user_ns_hidden
    }
    outputs = final_tensors(
        variables, "this notebook has no global", "Compute a loss in a cell first."
    )
    live = LiveOutputs(list(outputs.values()), [variables], "", tuple(outputs))
    return explained(live, words[1], "this notebook")
