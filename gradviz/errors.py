"""Every error gradviz raises on purpose.

A message says what went wrong, where, and what to do next. Each domain error also is
the builtin that a caller would expect, so `except ValueError` works. This module knows
nothing of torch, graphs or the command line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from gradviz.wording import few, one_line


class GradvizError(Exception):
    """Base of all errors that gradviz raises on purpose. The command line prints it
    without a traceback and exits 2.
    """

    exit_code = 2


class NoGraphError(GradvizError, ValueError):
    """What was given has no autograd graph; the message says why."""


class NotATensorError(GradvizError, TypeError):
    """What was given holds no tensor at all."""


class TargetError(GradvizError, ValueError):
    """A TARGET of the command line names nothing that can be run or found."""


class FormatError(GradvizError, ValueError):
    """An unknown output format or suffix, or an option with a value it does not take."""


class GraphFileError(GradvizError, ValueError):
    """A graph file that is broken, foreign, or of a later version than this gradviz
    reads.
    """


class LayoutError(GradvizError, RuntimeError):
    """Graphviz failed; the message says why."""


class LayoutTimeout(LayoutError, TimeoutError):
    """Graphviz did not finish within its time limit and was ended."""


class GraphvizNotFound(LayoutError):
    """Neither a Graphviz program nor the engine inside pygraphviz is there, or the
    environment forbids both.
    """


class GradientError(GradvizError, RuntimeError):
    """A gradient that cannot be computed without disturbing the graph, or not at all."""


class UnreadableError(GradvizError, RuntimeError):
    """Something that the torch which recorded the graph shows to nobody without running
    hooks.
    """


class NoPathError(GradientError):
    """A tensor that the output does not depend on, so that no gradient path leads to
    it.
    """


class OutputError(GradvizError, OSError):
    """A file that cannot be written."""


class ScriptError(GradvizError, RuntimeError):
    """The user's script raised. Its own traceback has been shown; the exit code is 3."""

    exit_code = 3


class MissingAttribute(GradvizError, AttributeError):
    """A name that people try and gradviz does not have; the message says what to use."""


_DRAWS = (
    "gradviz.walk(loss).save('net.svg') draws, and gradviz.show(loss) shows the page"
)
_TRIED = {
    **dict.fromkeys(("draw", "render", "plot"), _DRAWS),
    "tree": "gradviz.walk(loss).tree() is the tree",
    "to_dot": "graph.save('net.dot') writes it",
    "to_networkx": "gradviz.walk(loss).to_networkx() is the graph",
    "to_dataframe": "pandas.DataFrame(graph.nodes) is one, and pandas.DataFrame(gradviz.saved(graph)) that of its memory",
}


def missing_attribute(name: str, owner: str = "module 'gradviz'") -> AttributeError:
    """The error of an attribute that there is not.

    >>> missing_attribute("wlak")
    AttributeError("module 'gradviz' has no attribute 'wlak'")
    """
    missing = f"{owner} has no attribute {name!r}"
    if name in _TRIED:
        return MissingAttribute(f"{missing}: {_TRIED[name]}.")
    return AttributeError(missing)


def text_of(error: BaseException) -> str:
    """What an exception that is not ours says; its own `__str__` may raise."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"  # Python's own words


def reason_of(error: BaseException) -> str:
    """Class and first line of an error that is not ours, to end a message with.

    >>> reason_of(ValueError("too long\\nby two"))
    'ValueError: too long'
    """
    return f"{type(error).__name__}: {(text_of(error).splitlines() or [''])[0]}"


def bug_told(error: Exception) -> str:
    """What is said where a bug of gradviz's costs a part of an answer, and the rest is
    given. Tests have it raise.
    """
    return f"this is a bug in gradviz, please report it ({one_line(reason_of(error))})"


def did_you_mean(name: str, valid: Iterable[str], *, what: str = "known") -> str:
    """A closing sentence for messages about an unknown name: the near names, else all
    that are valid.

    >>> did_you_mean("los", ["loss", "x"])
    'Did you mean loss?'
    >>> did_you_mean("attn", ["model.h.0.attn", "model.head"])
    'Did you mean model.h.0.attn?'
    >>> did_you_mean("q", ["loss", "x"], what="tensors")
    'The tensors are: loss, x.'
    >>> did_you_mean("q", [], what="tensors")
    'There are no tensors.'
    """
    names = sorted(set(valid))
    near = _near(name, names)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    if not names:
        return f"There are no {what}."
    return f"The {what} are: {few(names, 20)}."


def _near(name: str, names: Sequence[str]) -> list[str]:
    """Up to three names like this one: as a whole, else in as many parts of a path from
    its end as it has, else in the last part.
    """
    parts = name.split(".")
    for count in (0, len(parts), 1):
        ends: dict[str, str] = {}
        for known in names:
            end = known.split(".")[-count:]
            ends.setdefault(".".join(end), known)

        wanted = ".".join(parts[-count:])
        near = difflib.get_close_matches(wanted, ends, n=3)
        if near:
            return [ends[end] for end in near]
    return []
