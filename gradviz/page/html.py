"""Writes the one file: the markup, the style, the script and the data, and a policy
that forbids everything else.

It shows a graph, the findings of `gradviz check` in one, or the difference of two.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from gradviz.draw.options import Options
from gradviz.draw.output import folded
from gradviz.draw.palette import DARK, LIGHT, Palette, border, dim
from gradviz.draw.summary import (
    counts_line,
    dtype_text,
    inferred_lines,
    is_all_freed,
    tensors_of,
    usual_dtype,
)
from gradviz.features import load
from gradviz.fold.functions import with_functions
from gradviz.graph import Graph, column
from gradviz.graph.amounts import own_seconds
from gradviz.graph.folders import without_folders
from gradviz.page.pack import Pack
from gradviz.page.records import records
from gradviz.page.sources import own_code
from gradviz.page.view import view
from gradviz.stages import Stage
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.checks.finding import Finding, Findings
    from gradviz.comparison.diff import FieldChange, GraphDiff, Joined

# Joins the viewer's JavaScript modules into one script, at write time and with nothing
# but Python. The modules are plain and use nothing but named imports from each other at
# their top. So joining is leaving the `import` lines, the word `export` and comments
# out, every module after those it imports, in one scope. A test asserts that no name is
# declared twice.

_FIRST = "main.js"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
# whole lines only: types and explanations
_COMMENT = re.compile(r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n", re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE
)


def asset(name: str) -> str:
    """The text of a file in `web/`."""
    return (
        resources.files("gradviz.page")
        .joinpath("web", name)
        .read_text(encoding="utf-8")
    )


@lru_cache(maxsize=1)
def script() -> str:
    """All modules as one script, in strict mode and a scope of its own."""
    parts = [
        _EXPORT.sub(
            "",
            _IMPORT.sub("", _COMMENT.sub("", asset(name))),
        )
        for name in in_order()
    ]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def in_order() -> list[str]:
    """Names of the modules, every one after those it imports."""
    ordered: dict[str, None] = {}

    def visit(name: str) -> None:
        for imported in _IMPORT.findall(asset(name)):
            if imported not in ordered:
                visit(imported)
        ordered[name] = None

    visit(_FIRST)
    return list(ordered)


_DARK = re.compile(r'^\[data-theme="dark"\] (\{.*?^\}\n)', re.DOTALL | re.MULTILINE)


@lru_cache(maxsize=1)
def style() -> str:
    """The style sheet with the colours of pictures: dark where the page is set to it,
    else where the reader asks for it.
    """
    text = (
        asset("style.css")
        .replace("/* light kinds */", _kinds(LIGHT))
        .replace("/* dark kinds */", _kinds(DARK))
    )
    asked = '@media (prefers-color-scheme: dark) {\n:root:not([data-theme="light"]) '
    return _DARK.sub(lambda dark: f"{dark[0]}{asked}{dark[1]}}}\n", text)


def _kinds(colors: Palette) -> str:
    """Fill, border and second line of each kind of box."""
    return " ".join(
        f"--{kind}: {fill}; --{kind}-line: {border(colors, kind)}; --{kind}-dim: {dim(colors, kind)};"
        for kind, fill in colors.fills.items()
    )


_SLOT = re.compile(r"\{(\w+)\}")


def render(
    graph: Graph,
    options: Options,
    add: Callable[[Pack], None] = lambda pack: None,
) -> Iterator[str]:
    """The page of a graph, in pieces. A folded graph is shown as it is folded, and
    opens.

    `add` may write more into the block of records.
    """
    original = graph.original if graph.original is not None else graph
    with Stage("page"):
        dtype, several = usual_dtype(tensors_of(original))
        drawn = view(
            graph,
            dtype,
            views=options.views == "show",
            names=options.op_names("variable"),
        )
        facts = records(with_functions(original))
        known_of = {
            "grad": bool(original.backward),
            "time": bool(own_seconds(original)),
        }
        color = options.color if known_of.get(options.color, True) else "kind"
        facts.put(
            about=about(original),
            allFreed=is_all_freed(original),
            color=color,
            titles=options.op_names("variable"),
        )
        facts.put(
            dtype=dtype,
            legend=dtype_text(dtype, several),
            code=own_code(original),
        )
        add(facts)
        clean = without_folders(original)
        return _pieces(
            original,
            options,
            drawn.base64(clean),
            facts.base64(clean),
            clean,
        )


def about(graph: Graph) -> list[str]:
    """What a reader must know of the graph as a whole."""
    words = [counts_line(graph)]
    if graph.torch:
        words.append(f"recorded by torch {one_line(graph.torch)}")
    return [
        *words,
        *inferred_lines(graph),
        *(one_line(note) for note in graph.notes if note.strip()),
    ]


def _pieces(
    graph: Graph,
    options: Options,
    drawn: str,
    facts: str,
    clean: Callable[[str], str],
) -> Iterator[str]:
    """The pieces of the file around its two blocks of data."""
    title = clean(one_line(graph.title).strip()) or "graph"
    sheet, code = style(), script()
    words = {
        "theme": "" if options.theme == "auto" else f' data-theme="{options.theme}"',
        "policy": policy(code, sheet),
        "title": _escaped(title),
        "style": sheet,
        "description": _escaped(
            f"Graph of {title}. Arrow keys move, plus and minus zoom, Enter opens."
        ),
        "summary": _escaped(
            clean(". ".join(about(graph)))
            + ". The outline lists every module and operation."
        ),
        "noscript": _escaped(
            f"{title}: {counts_line(graph)}. The page needs JavaScript; nothing is loaded."
        ),
        "view": drawn,
        "facts": facts,
        "script": code,
    }
    for i, piece in enumerate(_SLOT.split(asset("page.html"))):
        yield words[piece] if i % 2 else piece


def policy(code: str, sheet: str) -> str:
    """A Content-Security-Policy: this script and this style, pictures made here, and
    nothing from anywhere.
    """
    rules = (
        "default-src 'none'",
        f"script-src {_hash(code)}",
        f"style-src {_hash(sheet)}",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode('ascii')}'"


def _escaped(text: str) -> str:
    """Text for an element or attribute. Half surrogates have no place in UTF-8."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"))


_CODE = 60
"""Characters of a line of code in the list."""


def render_findings(findings: Findings, options: Options) -> Iterator[str]:
    """The page of the graph that the worst finding is about, folded as in a picture,
    with all findings.
    """

    def add(pack: Pack) -> None:
        listed = [
            _finding(number, finding) for number, finding in enumerate(findings, 1)
        ]
        pack.put(
            findings=listed,
            checked=[one_line(name) for name in findings.checked],
        )

    return render(folded(findings.graph, options), options, add)


def _finding(number: int, finding: Finding) -> list[Any]:
    words = (
        finding.id,
        finding.severity,
        finding.summary,
        ", ".join(finding.names),
        finding.where,
        finding.why,
        finding.fix,
        "; ".join(
            f"{consequence.summary} [{consequence.id}]"
            for consequence in finding.consequences
        ),
    )
    code_lines = load("gradviz.checks.excerpt:code_lines")
    if finding.code is not None:
        code = "\n".join(code_lines(finding.code, _CODE))
    else:
        code = ""

    return [number, *map(one_line, words), code]


ADDED, REMOVED, CHANGED = 1, 2, 3


def render_difference(difference: GraphDiff, options: Options) -> Iterator[str]:
    """The page of the second graph, with what only the first had drawn among it."""
    both = difference.joined
    kinds = [0] * len(both.graph.nodes)
    for node in difference.added:
        kinds[node] = ADDED
    for node in difference.removed:
        kinds[both.number[node]] = REMOVED
    for node_change in difference.changed:
        kinds[node_change.after] = CHANGED

    def add(pack: Pack) -> None:
        changes = [
            [node.after, list(map(_change, node.changes))]
            for node in difference.changed
        ]
        pack.add(diff=kinds)
        pack.put(edgeDiff=_edges(difference, both), changes=changes)

    return render(folded(both.graph, options), options, add)


def _change(change: FieldChange) -> str:
    field, before, after = map(one_line, change)
    return f"{field}: {before} → {after}"


def _edges(
    difference: GraphDiff,
    both: Joined,
) -> list[tuple[int, int]]:
    """Edges of the joined graph that came or went, by place, each with what it did."""
    edges = both.graph.edges
    ends = zip(
        column(edges, "consumer"),
        column(edges, "producer"),
        column(edges, "position"),
    )
    places: dict[tuple[int, int, int], list[int]] = {}
    for place, key in enumerate(ends):
        places.setdefault(key, []).append(place)

    added = [
        (place, ADDED)
        for e in difference.added_edges
        for place in places[e.consumer, e.producer, e.position][:1]
    ]
    gone = [
        (places[e.consumer, e.producer, e.position][-1], REMOVED) for e in both.gone
    ]

    return sorted(dict((*added, *gone)).items())
