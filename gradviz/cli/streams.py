"""Keeps gradviz's own result on standard output apart from what the user's script
prints.

Works on the file descriptor, so that child processes and C code are covered too, and on
`sys.stdout` where that is not the descriptor (a notebook, a test). Knows nothing of
graphs or commands.
"""

from __future__ import annotations

import ctypes
import errno
import io
import os
import sys
import textwrap
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from gradviz.cli.launch import own_file, reports
from gradviz.draw.output import refuse_unwritable, refuse_wrong_file
from gradviz.errors import OutputError
from gradviz.report.results import console

if TYPE_CHECKING:
    from gradviz.run.ending import RunResult

Command = TypeVar("Command", bound=Callable[..., Any])
"""The function of a command, to which a decorator adds options."""

SHORT = "gradviz.short"
"""Of a command's context: no command was named, so the script is checked."""

# Where a command writes its file: checked before a script runs for an hour, and a file
# of its own for each of several ranks.

# of a command's context: where it writes, and what stood there before
_PLACE = "gradviz.destination"


def destination(
    path: str, inputs: Iterable[str], *, format: str | None = None, asked: bool = True
) -> str:
    """The path to write to. Raises OutputError when nothing can be written there, or
    where it is one of the `inputs` of the command, or a file that is not gradviz's.

    Each of several ranks gets its own, which is said where the user `asked` for
    another.
    """
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise OutputError(
            f"cannot write {path!r}: there is no folder {folder!r}. Create it first, or choose another."
        )
    # a pipe or a device is everybody's
    if not os.path.exists(path) or os.path.isfile(path):
        path = own_file(path, asked=asked)
    refuse_wrong_file(path, format=format, inputs=inputs, force=forced())
    refuse_unwritable(path)
    click.get_current_context().meta[_PLACE] = path, _identity(path)
    return path


# of a command's context: whether what it writes is shown, and may replace any file
_OPEN, _FORCE = "gradviz.open", "gradviz.force"


def _open_at_end(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[_OPEN] = True
        ctx.call_on_close(lambda: _open(written(ctx)) if reports() else None)


def _note_force(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
    ctx.meta[_FORCE] = wanted


def forced() -> bool:
    """Whether the command may replace a file that gradviz did not write."""
    return bool(click.get_current_context().meta.get(_FORCE))


def file_options(function: Command) -> Command:
    """Adds `--open` and `--force`, for a command that writes a file."""
    for name, callback, help in (
        ("--force", _note_force, "Replace a file that gradviz did not write."),
        ("--open", _open_at_end, "Open the file that was written in the browser."),
    ):
        option = click.option(
            name,
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=callback,
            help=help,
        )
        function = option(function)
    return function


@contextmanager
def shown_in_any_case(captured: RunResult[Any]) -> Iterator[None]:
    """Around what writes a result to a file: where that fails, how the script failed is
    told all the same.
    """
    try:
        yield
    except OutputError as error:
        if captured.failure is not None:
            complain(f"Error: {error}")
        captured.raise_failure()
        raise


def opens() -> bool:
    """Whether what the command writes is shown, so that it has to write something."""
    return _OPEN in click.get_current_context().meta


def refuse_to_open(output: str | None) -> None:
    """Raises UsageError when there is no file to show."""
    if opens() and output in (None, "-"):
        raise click.UsageError(
            "--open shows a file that is written. Give it with -o FILE."
        )


def _open(path: str) -> None:
    if path and not webbrowser.open(Path(os.path.abspath(path)).as_uri()):
        complain(f"no browser was found to open {path} in.")


def written(context: click.Context | None = None) -> str:
    """The file that the command has written; "" when it is not there, or is as it was.
    A file is written whole or not at all.
    """
    context = context or click.get_current_context(silent=True)
    if context is not None:
        path, before = context.meta.get(_PLACE, ("", None))
    else:
        path, before = ("", None)
    return path if path and _identity(path) not in (None, before) else ""


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


_STDOUT, _STDERR = 1, 2
NO_ROOM = {errno.ENOSPC, errno.EIO, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}
_redirected = False


@contextmanager
def result_stream() -> Iterator[TextIO]:
    """Standard output for gradviz's result alone; until the end of the block everybody
    else's goes to standard error.

    A rank that does not report writes its result to nowhere.
    """
    if sys.stdout is None:
        raise OutputError(
            "standard output is closed, so there is nowhere to write the result. Give a file with -o."
        )
    with _moved() if _is_descriptor(sys.stdout) else _replaced() as stream:
        if reports():
            yield stream
        else:
            with open(os.devnull, "w", encoding="utf-8") as nowhere:
                yield nowhere


def complain(message: str, width: int | None = None) -> None:
    """Write a message for the user to standard error: on a terminal in lines that fit
    it, elsewhere in lines of `width` characters, if that is given.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        if width is not None:
            paragraphs = [textwrap.fill(line, width) for line in message.splitlines()]
            message = "\n".join(paragraphs)
        click.echo(message, err=True)
        return
    from gradviz.report.rich_parts import Text

    console(sys.stderr).print(Text(message, overflow="fold"))


def result_began() -> bool:
    """Whether a result was to go to standard output, of which a part may have been
    written.
    """
    return _redirected


def keep_late_output_away() -> None:
    """Send what the script still prints while the process ends (`atexit`) to standard
    error, if a result was written.
    """
    if not _redirected:
        return
    if sys.stdout is not None:
        with suppress(OSError, ValueError):  # nobody may be reading any more
            sys.stdout.flush()
    with suppress(OSError):
        os.dup2(_STDERR, _STDOUT)


def abandon_stdout() -> None:
    """Drop what could not be written, which Python would try to write again while the
    process ends.
    """
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, _STDOUT)
        os.close(null)


def _is_descriptor(stream: TextIO) -> bool:
    try:
        return stream.fileno() == _STDOUT
    except (OSError, ValueError, AttributeError):
        return False


@contextmanager
def _replaced() -> Iterator[TextIO]:
    stream, sys.stdout = sys.stdout, sys.stderr
    try:
        yield stream
        stream.flush()
    finally:
        sys.stdout = stream


@contextmanager
def _moved() -> Iterator[TextIO]:
    global _redirected
    sys.stdout.flush()
    # closed: take its number, so that nothing else gets it and the script's output has
    # a place
    if sys.stderr is None:
        os.open(os.devnull, os.O_WRONLY)

    kept = os.dup(_STDOUT)
    os.dup2(_STDERR, _STDOUT)
    _redirected = True
    errors = "replace" if sys.stdout.errors == "strict" else sys.stdout.errors
    stream = io.TextIOWrapper(
        os.fdopen(os.dup(kept), "wb"),
        encoding=sys.stdout.encoding,
        errors=errors,
        line_buffering=sys.stdout.isatty(),
    )

    try:
        with _refusing():
            yield stream
            stream.flush()
    finally:
        _flush_everything()
        os.dup2(kept, _STDOUT)
        os.close(kept)
        with suppress(OSError):  # nobody may be reading any more; the block has said so
            stream.close()


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns a full disk into a message. Other system errors are not ours to explain."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM or isinstance(error, OutputError):
            raise
        raise OutputError(
            f"cannot write the result to standard output: {error.strerror}."
        ) from error


def _flush_everything() -> None:
    """What Python and C still hold back, before the descriptor changes hands."""
    with suppress(Exception):  # the user's code may have closed it
        sys.stdout.flush()
    if os.name == "posix":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).fflush(None)
