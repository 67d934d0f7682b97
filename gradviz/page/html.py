"""Writes the one file: the markup, the style, the script and the data, and a policy that forbids everything else."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources

from gradviz.draw.footer import counts_line, is_all_freed
from gradviz.draw.options import Options
from gradviz.graph import Graph
from gradviz.page.facts import facts
from gradviz.page.pack import Pack
from gradviz.page.steps import steps
from gradviz.page.view import view
from gradviz.report.labels import one_line
from gradviz.stages import Stage

# Joins the viewer's JavaScript modules into one script, at write time and with nothing but Python. The modules are
# plain and use nothing but named imports from each other at their top. So joining is leaving the `import` lines, the
# word `export` and comments out, every module after those it imports, in one scope. A test asserts that no name is
# declared twice.

_FIRST = "main.js"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_COMMENT = re.compile(
    r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n", re.MULTILINE
)  # whole lines only: types and explanations
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)


def asset(name: str) -> str:
    """The text of a file in `web/`."""
    return resources.files("gradviz.page").joinpath("web", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def script() -> str:
    """All modules as one script, in strict mode and a scope of its own."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", asset(name)))) for name in in_order()]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def in_order() -> list[str]:
    """Names of the modules, every one after those it imports."""
    found: list[str] = []
    waiting = [(_FIRST, iter(_IMPORT.findall(asset(_FIRST))))]
    entered = {_FIRST}
    while waiting:
        name, imports = waiting[-1]
        following = next((one for one in imports if one not in entered), None)
        if following is None:
            found.append(name)
            waiting.pop()
        else:
            entered.add(following)
            waiting.append((following, iter(_IMPORT.findall(asset(following)))))
    return found


_SLOT = re.compile(r"\{(\w+)\}")


def render(graph: Graph, options: Options) -> Iterator[str]:
    """The page of a graph, in pieces. A folded graph is shown as it is folded, and opens."""
    return compose(graph, options)


def compose(graph: Graph, options: Options, add: Callable[[Pack], None] = lambda pack: None) -> Iterator[str]:
    """The same, with what `add` writes into the block of facts."""
    whole = graph.original if graph.original is not None else graph
    with Stage("page"):
        drawn = view(whole, graph).base64()
        known = facts(whole, steps(whole))
        known.put("about", about(whole))
        known.put("allFreed", is_all_freed(whole))
        known.put("color", options.color if options.color != "grad" or whole.backward else "kind")
        add(known)
        return pages(whole, options, drawn, known.base64())


def about(graph: Graph) -> list[str]:
    """What a reader must know of the graph as a whole."""
    words = [counts_line(graph)]
    if graph.torch:
        words.append(f"recorded by torch {one_line(graph.torch)}")
    if graph.attribution == "inferred":
        words.append("modules are inferred from parameters: nobody recorded the calls")
    return [*words, *(one_line(note) for note in graph.notes if note.strip())]


def pages(graph: Graph, options: Options, drawn: str, known: str) -> Iterator[str]:
    """The pieces of the file around its two blocks of data."""
    title = one_line(graph.title).strip() or "graph"
    style, code = asset("style.css"), script()
    words = {
        "theme": "" if options.theme == "auto" else f' data-theme="{options.theme}"',
        "policy": policy(code, style),
        "title": html.escape(_clean(title)),
        "style": style,
        "description": html.escape(_clean(f"Graph of {title}. Arrow keys move, plus and minus zoom, Enter opens.")),
        "summary": html.escape(_clean(". ".join(about(graph)) + ". The outline lists every module and operation.")),
        "noscript": html.escape(
            _clean(f"{title}: {counts_line(graph)}. The page needs JavaScript; nothing is loaded.")
        ),
        "view": drawn,
        "facts": known,
        "script": code,
    }
    for i, piece in enumerate(_SLOT.split(asset("page.html"))):
        yield words[piece] if i % 2 else piece


def policy(code: str, style: str) -> str:
    """A Content-Security-Policy: this script and this style, pictures made here, and nothing from anywhere."""
    rules = (
        "default-src 'none'",
        f"script-src 'sha256-{_hash(code)}'",
        f"style-src 'sha256-{_hash(style)}'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def _clean(text: str) -> str:
    """Half surrogates have no place in UTF-8."""
    return text.encode("utf-8", "replace").decode("utf-8")
