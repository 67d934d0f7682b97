"""What a notebook shows for a graph: the picture, the interactive page in a frame, and
text for front ends that draw neither.

Displaying a graph never raises, since an error in a display hook hides what the cell
made. When there is no picture, a warning says why, and the text that is shown instead
is marked. This module knows no format of its own.
"""

from __future__ import annotations

import base64
import html
import sys
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradviz.draw.options import Options
from gradviz.draw.output import render, sketched
from gradviz.draw.summary import IN_PYTHON
from gradviz.draw.svg import write
from gradviz.features import is_there
from gradviz.graph import Graph
from gradviz.graph.given import graph_of
from gradviz.report.notebook_theme import FOLLOWS, OUTPUT

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from gradviz.draw.typed import DrawOptions

# a sandbox does not see it
_TELL = "this.contentWindow.postMessage({theme:getComputedStyle(this).colorScheme},'*')"
_BUTTON = 'style="cursor:pointer;display:inline-block;padding:2px 10px;border:1px solid #8888;border-radius:6px"'
HEIGHT = 640
"""Of the frame, in pixels."""
MAX_PAGE = 1_000_000
"""Characters of a page that is kept beside a picture, in the notebook's file."""
MAX_NODES = 3_000  # a larger picture makes the notebook file and the browser slow


def mimebundle(graph: Graph) -> dict[str, str]:
    """What to show for `graph`, by MIME type: an SVG as wide as the cell at most,
    folded as in a file, and text.

    As HTML the picture, and the interactive page in a frame that opens.

    >>> sorted(mimebundle(Graph()))
    ['image/svg+xml', 'text/html', 'text/plain']
    """
    options, text = Options(), _text(graph)
    before = IN_PYTHON.set(True)
    try:
        sketch = sketched(graph, options)
        folding = sketch.folding
        if folding.size > MAX_NODES:
            many = f"{folding.size:,} nodes are too many to show in a notebook"
            return {
                "text/plain": _marked(
                    f"{many}. Write them to a file: graph.save('graph.svg')", text
                )
            }

        svg = "".join(write(sketch.picture(), options.theme, fit=True))
        page = _page(graph)
        return {"image/svg+xml": svg, "text/plain": text} | (
            {"text/html": _with_page(svg, page)} if page else {}
        )
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        warnings.warn(
            f"gradviz could not draw this graph: {reason}", RuntimeWarning, stacklevel=2
        )
        return {"text/plain": _marked(reason, text)}
    finally:
        IN_PYTHON.reset(before)


def _page(graph: Graph) -> str:
    """The interactive page; "" where it is too large to be kept beside a picture, or
    there is none.
    """
    if not is_there("gradviz.page"):
        return ""
    page = render(graph, "html", Options())
    return page if isinstance(page, str) and len(page) <= MAX_PAGE else ""


def _with_page(svg: str, page: str) -> str:
    """The picture, as an image that keeps its style to itself, and a button that opens
    the page below it.
    """
    data = base64.b64encode(svg.encode()).decode()
    picture = f'<img class="{OUTPUT}" style="max-width:100%" alt="picture of the graph" src="data:image/svg+xml;base64,{data}">'
    return f"{FOLLOWS}{picture}<details><summary {_BUTTON}>Open the interactive page</summary>{_frame(page, HEIGHT)}</details>"


def _frame(page: str, height: int) -> str:
    """The page in a frame of its own, where alone scripts run."""
    frame = f'class="{OUTPUT}" width="100%" height="{height}" style="border:1px solid #8884;border-radius:6px"'
    sandbox = 'sandbox="allow-scripts allow-downloads allow-modals"'
    return f'<iframe {sandbox} {frame} onload="{_TELL}" srcdoc="{html.escape(page)}"></iframe>'


def _marked(reason: str, text: str) -> str:
    return f"[no picture: {reason}]\n\n{text}"


def _text(graph: Graph) -> str:
    """The summary, or the counts when even that fails."""
    try:
        return str(graph)
    except Exception:
        return f"Graph with {len(graph.nodes):,} nodes and {len(graph.edges):,} edges"


@dataclass(frozen=True)
class Shown:
    """What a notebook displays. `page` is the whole HTML file, `height` that of the
    frame in pixels.
    """

    page: str
    height: int
    summary: str

    def _repr_html_(self) -> str:
        return FOLLOWS + _frame(self.page, self.height)

    def __repr__(self) -> str:
        return self.summary


def show(
    graph: object, *, height: int = HEIGHT, **options: Unpack[DrawOptions]
) -> Shown | None:
    """Show the interactive page of a graph: under IPython at once, in a loop and in the
    middle of a cell too.

    Parameters
    ----------
    graph
        any Graph, or the tensors of one.
    height
        of the frame, in pixels.
    options
        those of `Graph.save`, such as `depth="all"` and `theme="dark"`.

    Returns
    -------
    Shown or None
        None under IPython, so that the end of a cell does not show it again; elsewhere
        what a notebook displays, whose `page` is the HTML file.

    Raises
    ------
    FormatError
        an option is unknown.

    Examples
    --------
    >>> from gradviz.graph import Graph, Node
    >>> shown = show(Graph(nodes=(Node(0, "AddBackward0"),)))
    >>> '<iframe sandbox="allow-scripts' in shown._repr_html_()
    True
    """
    shown = frame(graph_of(graph), height=height, **options)
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        return shown
    from IPython.core import display_functions

    display: Any = display_functions.display
    display(shown)
    return None


def frame(
    graph: Graph, *, height: int = HEIGHT, **options: Unpack[DrawOptions]
) -> Shown:
    """The page of a graph as an object that a notebook displays."""
    page = render(graph, "html", Options.of(options))
    assert isinstance(page, str)
    return Shown(page, height, str(graph))
