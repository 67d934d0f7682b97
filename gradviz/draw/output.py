"""Renders a graph to memory or to a file: the formats, one row each, and a file that is
whole or not there.

Choices, suffixes, help and error texts all derive from the rows of the formats. A
renderer is imported when it is first used: this module knows no picture format, only
where it is. A file is written under a temporary name in its own folder and renamed when
it is whole: a reader never sees half a file, and an error or Ctrl-C leaves the old file
as it was.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from gradviz.draw.options import Options, near, option_fields
from gradviz.draw.replacing import refuse_to_replace
from gradviz.errors import FormatError, OutputError
from gradviz.features import is_there, load
from gradviz.fold.folding import Folding
from gradviz.graph import Graph
from gradviz.graph.collector import paused
from gradviz.graph.files import dump

if TYPE_CHECKING:
    from gradviz.draw.picture import Sketch


def sketched(graph: Graph, options: Options, crop: bool = False) -> Sketch:
    """What to draw of a graph: what the options ask for; by default as the caller folded
    it, else as much as a page holds. `crop`: of a module in focus, that one alone.
    """
    from gradviz.draw.picture import Sketch
    from gradviz.fold.fold import opened

    tried = set[bool]()

    @cache
    def sketch(folding: Folding) -> Sketch:
        """Made once, so that a picture that was measured is drawn as it is."""
        return Sketch(folding, options, tried)

    asked = (options.depth, options.focus, options.expand, options.views)
    folding: Folding | None = graph.folding
    if folding is not None and asked == ("auto", None, (), "auto"):
        return sketch(folding)
    return sketch(
        opened(
            graph,
            depth=options.depth,
            focus=options.focus,
            expand=options.expand,
            views=options.views,
            crop=crop,
            measure=lambda folding, sheet: sketch(folding).measured(sheet),
        )
    )


def render(graph: Graph, format: str, options: Options | None = None) -> str | bytes:
    """The graph in one format, as text, or bytes for png and pdf. Raises FormatError
    for an unknown format.

    >>> from gradviz.graph import Graph, Node
    >>> print(render(Graph(nodes=(Node(0, "AddBackward0"),)), "dot").splitlines()[0])
    digraph gradviz {
    """
    with paused():
        drawing = _rendered(graph, format, options)
        return drawing if isinstance(drawing, (str, bytes)) else "".join(drawing)


def pieces(
    graph: Graph, format: str, options: Options | None = None
) -> Generator[bytes, None, None]:
    """The graph in one format, piece by piece and encoded as in a file: what to write
    to a pipe.
    """
    with paused():
        drawing = _rendered(graph, format, options)
        for piece in (drawing,) if isinstance(drawing, (str, bytes)) else drawing:
            yield piece if isinstance(piece, bytes) else encode(piece)


def _rendered(
    graph: Graph, format: str, options: Options | None
) -> str | bytes | Iterator[str]:
    row, options = get_format(format), options or Options()
    refuse_options(format, options)
    if options.title is not None:
        graph = _titled(graph, options.title)
    if not row.folded:
        return row.load()(graph, options)
    return row.load()(sketched(graph, options, row.still), options)


def refuse_options(format: str, options: Options) -> None:
    """Raise FormatError for an option that changes nothing in this format. JSON holds the
    whole graph, whatever a picture would show, and takes all.
    """
    row = get_format(format)
    if row.name == "json":
        return
    for item in option_fields():
        is_asked = getattr(options, item.name) != item.default
        if is_asked and item.name not in row.options:
            others = [one.name for one in FORMATS.values() if item.name in one.options]
            raise FormatError(
                f"{item.name} changes nothing in {row.name}, only in {', '.join(others)}"
            )


def _titled(graph: Graph, title: str) -> Graph:
    """The graph under another title, folded or not."""
    folding, named = graph.folding, partial(replace, title=title)
    if folding is not None:
        folding = replace(
            folding, graph=named(folding.graph), recorded=named(folding.recorded)
        )
    return named(graph, folding=folding)


def save(
    graph: Graph,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    force: bool = False,
    **options: Any,
) -> str:
    """Write the graph to `path` and return the path. The suffix picks the format,
    unless `format` names one.

    `force` replaces a file that gradviz did not write. Other options are the fields of
    `Options`. Raises FormatError for an unknown suffix, format or option, and
    OutputError when the file cannot be written; a file that was there before is then
    left as it was.
    """
    name = format_of(path).name if format is None else get_format(format).name
    checked = Options.of(options)
    # at once, also while its exception is kept
    with contextlib.closing(pieces(graph, name, checked)) as chunks:
        write(path, chunks, force=force)
    return os.fspath(path)


# -- the registry of formats -----------------------------------------------------------

Renderer = Callable[[Any, Options], str | bytes | Iterator[str]]
"""What a row's `target` names: of a graph, or of a sketch where it is `folded`. Large outputs come as an iterator of pieces."""


_NO_PICTURE = {"by", "max_rows", "columns", "links", "scale"}
_PICTURE = frozenset(item.name for item in option_fields()) - _NO_PICTURE


class Format(NamedTuple):
    """One output format. `target` is `module:attribute`; the first suffix is the one to
    propose; `mark` is a pattern that each file of the format matches, by which a later
    run knows that it may replace it.

    A `folded` format is a picture for a person: it is given a `Sketch` of what is open,
    any other one the `Graph`. Where a module is in focus, one that is `still` shows that
    alone, since nothing in it can be opened; else `still` changes nothing.
    """

    name: str
    suffixes: tuple[str, ...]
    help: str
    target: str
    mark: bytes = b"(?!)"
    options: frozenset[str] = _PICTURE
    folded: bool = True
    still: bool = True
    binary: bool = False

    def load(self) -> Renderer:
        """The function that renders this format."""
        return cast(Renderer, load(self.target))


_RASTER = "gradviz.draw.raster"
_TREE = frozenset(
    {"title", "by", "names", "depth", "leaves", "saved", "max_rows", "columns"}
)
_DATA = frozenset({"title", "color"})  # `--color grad` measures what they hold
_PAGE = {"names", "depth", "focus", "expand", "views", "theme", "color", "links"}
_ROWS = (
    Format(
        "svg",
        (".svg",),
        "picture for browsers and documents",
        "gradviz.draw.svg:render",
        rb'\A<svg [^>]* class="gv-',
    ),
    Format(
        "png",
        (".png",),
        "picture in pixels",
        f"{_RASTER}:render_png",
        rb"(?s)\A.{33}....tEXtSoftware\0gradviz",
        options=_PICTURE | {"scale"},
        binary=True,
    ),
    Format(
        "pdf",
        (".pdf",),
        "picture for print",
        f"{_RASTER}:render_pdf",
        rb"%gradviz\n\Z",
        binary=True,
    ),
    Format(
        "dot",
        (".dot", ".gv"),
        "source for your own Graphviz",
        "gradviz.draw.dot:render",
        rb"\Adigraph gradviz {",
    ),
    Format(
        "html",
        (".html", ".htm"),
        "page that opens, explains and plays the graph",
        "gradviz.page.html:render",
        rb'(?s)\A<!doctype html>.{0,999}<meta name="generator" content="gradviz" />',
        options=_DATA | _PAGE,
        still=False,
    ),
    Format(
        "txt",
        (".txt",),
        "tree in plain text",
        "gradviz.draw.tree:render_text",
        rb"\n[\d,]+ backward functions?, .* edges?\n(?:.+\n)*\Z",
        options=_TREE,
        folded=False,
    ),
    Format(
        "md",
        (".md",),
        "Mermaid flowchart in Markdown",
        "gradviz.draw.mermaid:render",
        rb"\A(?:\*\*.*\n\n)?```mermaid\n%% gradviz\n",
    ),
    Format(
        "graphml",
        (".graphml",),
        "nodes and edges for other graph tools",
        "gradviz.graphml:render_graphml",
        rb"</graphml>\s*<!-- gradviz -->\n\Z",
        options=_DATA,
        folded=False,
    ),
    Format(
        "json",
        (".json",),
        "the whole graph, to load again",
        "gradviz.draw.output:render_json",
        rb'\A{"format":"gradviz-graph"',
        options=_DATA,
        folded=False,
    ),
)
FORMATS: dict[str, Format] = {row.name: row for row in _ROWS if is_there(row.target)}


def listed(pictures: bool = False) -> str:
    """The names of all formats, or of the pictures among them, as a sentence has them.

    >>> listed(pictures=True)
    'svg, png, pdf, dot, html or md'
    """
    *names, last = [row.name for row in FORMATS.values() if row.folded or not pictures]
    return f"{', '.join(names)} or {last}"


def get_format(name: str) -> Format:
    """The format of that name. Raises FormatError that lists the valid names."""
    if name in FORMATS:
        return FORMATS[name]
    raise FormatError(
        f"there is no format {name!r}. The formats are: {', '.join(FORMATS)}.{near(name, FORMATS)}"
    )


def format_of(path: str | os.PathLike[str]) -> Format:
    """The format that a file's suffix stands for, in upper or lower case. Raises
    FormatError with the valid ones.
    """
    name = os.fspath(path)
    suffix = os.path.splitext(name)[1].lower()
    for row in FORMATS.values():
        if suffix in row.suffixes:
            return row
    suffixes = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)
    if suffix:
        problem = f"the suffix {suffix!r} of {name!r} names no format"
    else:
        problem = f"{name!r} has no suffix to pick a format"
    raise FormatError(f"{problem}. The suffixes are: {suffixes}.")


# -- the format that holds the whole graph for other programs, and no drawing of it --


def render_json(graph: Graph, options: Options) -> Iterator[str]:
    """The whole graph, to load again, in pieces (`gradviz.graph.files`)."""
    return dump(graph)


# -- files -----------------------------------------------------------------------------


def encode(text: str) -> bytes:
    """UTF-8. Half a surrogate pair, which UTF-8 cannot hold, becomes its escape (also
    what JSON calls it).
    """
    return text.encode("utf-8", "backslashreplace")


def refuse_wrong_file(
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    inputs: Iterable[str] = (),
    force: bool = False,
) -> None:
    """Raise OutputError where the file is read or run; without `force` also where
    gradviz did not write it, or its suffix is not of `format` (by default of any).
    """
    rows = FORMATS.values()
    named = rows if format is None else [get_format(format)]
    refuse_to_replace(
        path,
        suffixes=[suffix for row in named for suffix in row.suffixes],
        marks=[row.mark for row in rows],
        inputs=inputs,
        force=force,
    )


def write(
    path: str | os.PathLike[str], chunks: Iterable[bytes], *, force: bool = False
) -> None:
    """Write chunks to a file, all or nothing. Raises OutputError, also for a file that
    must stay (`refuse_wrong_file`); what `chunks` itself raises goes through.
    """
    refuse_wrong_file(path, force=force)
    # a link stays a link: what it points at is replaced
    target = os.path.realpath(path)
    # a pipe or a device such as /dev/stdout cannot be renamed over
    is_replaced = os.path.isfile(target) or not os.path.exists(target)
    file = _beside(target) if is_replaced else target
    try:
        with _refusing(path):
            handle = open(file, "xb" if is_replaced else "wb")  # noqa: SIM115
        try:
            for chunk in chunks:
                with _refusing(path):
                    handle.write(chunk)
            with _refusing(path):
                handle.flush()
        finally:
            # closing tries to write what was refused, and is refused once more
            with contextlib.suppress(OSError):
                handle.close()
        if is_replaced:
            with _refusing(path):
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(file, stat.S_IMODE(os.stat(target).st_mode))
                os.replace(file, target)
    except BaseException:  # Ctrl-C too: nothing half-written may stay
        if is_replaced:
            with contextlib.suppress(OSError):
                os.unlink(file)
        raise


def refuse_unwritable(path: str | os.PathLike[str]) -> None:
    """Raise the OutputError that `write` would raise, as far as it can be known before
    there is anything to write.
    """
    target = os.path.realpath(path)
    with _refusing(path):
        with contextlib.suppress(FileNotFoundError):
            os.stat(target)  # a name may be too long
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if os.path.exists(target) and not os.path.isfile(target):
            return

        temporary = _beside(target)
        try:
            open(temporary, "xb").close()
        finally:  # also where Ctrl-C comes in between
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)


def _beside(target: str) -> str:
    """A name that nothing has in the folder of `target`."""
    return os.path.join(os.path.dirname(target), f".gradviz-{secrets.token_hex(6)}.tmp")


@contextlib.contextmanager
def _refusing(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turns the system's refusal into an OutputError that says what to do."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader went away; the command line takes that quietly
    except OSError as error:
        raise OutputError(
            f"cannot write {os.fspath(path)!r}: {_advice(os.fspath(path), error)}"
        ) from error


def _advice(path: str, error: OSError) -> str:
    folder = os.path.dirname(path) or "."
    if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.isdir(folder):
        return f"there is no folder {folder!r}. Create it first, or choose another."
    if os.path.isdir(path):
        return f"it is a folder. Give a file name, such as {os.path.join(path, 'graph.svg')!r}."
    if error.errno == errno.ENOSPC:
        return "the disk is full. Free some space, or choose another folder."
    return f"{error.strerror or error}. Choose another file name or folder."
