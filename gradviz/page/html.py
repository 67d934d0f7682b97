"""Writes the one file: the markup, the style, the script and the data, and a policy
that forbids everything else.

It shows a graph, the findings of `gradviz check` in one, or the difference of two.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

from gradviz.draw.options import Options
from gradviz.draw.output import sketched
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
from gradviz.fold.folding import unfolded
from gradviz.fold.grouping import grouped
from gradviz.fold.groups import Section
from gradviz.graph import Graph
from gradviz.graph.folders import without_folders
from gradviz.page.pack import Pack
from gradviz.page.records import records
from gradviz.page.sources import editor_paths, own_code
from gradviz.page.view import view
from gradviz.stages import Stage
from gradviz.wording import one_line

if TYPE_CHECKING:
    from gradviz.checks.finding import Finding, Findings
    from gradviz.comparison.diff import FieldChange, GraphDiff, Joined
    from gradviz.draw.picture import Sketch

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
    return resources.files("gradviz.page").joinpath("web", name).read_text("utf-8")


@lru_cache(maxsize=1)
def script() -> str:
    """All modules as one script, in strict mode and a scope of its own."""
    parts: dict[str, str] = {}

    def visit(name: str) -> None:
        """Add a module, after those that it imports."""
        text = asset(name)
        for imported in _IMPORT.findall(text):
            if imported not in parts:
                visit(imported)
        parts[name] = _EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", text)))

    visit(_FIRST)
    return '"use strict";\n(() => {\n' + "\n".join(parts.values()) + "})();\n"


_DARK = re.compile(r'^\[data-theme="dark"\] (\{.*?^\}\n)', re.DOTALL | re.MULTILINE)


@lru_cache(maxsize=1)
def style() -> str:
    """The style sheet with the colours of pictures: dark where the page is set to it,
    else where the reader asks for it.
    """
    text = asset("style.css")
    text = text.replace("/* light kinds */", _kinds(LIGHT))
    text = text.replace("/* dark kinds */", _kinds(DARK))
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
    sketch: Sketch, options: Options, add: Callable[[Pack], None] = lambda pack: None
) -> Iterator[str]:
    """The page of a graph, in pieces: at first as it is folded, and all of it opens.

    `add` may write more into the block of records.
    """
    graph, opening = sketch.folding.recorded, sketch.folding.opening
    with Stage("page"):
        if opening is None:
            groups = grouped(graph, views=options.views == "show")
            # a graph that was not folded is shown in full
            is_open: Container[Section] = set(groups)
        else:
            groups, is_open = opening.groups, opening.open

        dtype, several = usual_dtype(tensors_of(graph.nodes, graph.leaves))
        names, held = options.op_names("variable"), graph.held
        drawn = view(groups, is_open, dtype, names, held)
        facts = records(groups.graph, held)
        measured = options.color != "grad" or graph.backward
        facts.put(
            about=about(graph),
            allFreed=is_all_freed(graph.nodes),
            color=options.color if measured else "kind",
            titles=names,
            dtype=dtype,
            legend=dtype_text(dtype, several),
            code=own_code(graph),
            links=editor_paths(graph) if options.links == "vscode" else [],
        )
        add(facts)
        clean = without_folders(graph)
        blocks = {"view": drawn.base64(clean), "facts": facts.base64(clean)}
        return _pieces(graph, options, blocks, clean)


def about(graph: Graph) -> list[str]:
    """What a reader must know of the graph as a whole."""
    words = [counts_line(unfolded(graph))]
    if graph.torch:
        words.append(f"recorded by torch {one_line(graph.torch)}")
    return [
        *words,
        *inferred_lines(graph),
        *(one_line(note) for note in graph.notes if note.strip()),
    ]


def _pieces(
    graph: Graph, options: Options, blocks: dict[str, str], clean: Callable[[str], str]
) -> Iterator[str]:
    """The pieces of the file around its two blocks of data."""
    title = clean(one_line(graph.title).strip()) or "graph"
    summary = clean(". ".join(about(graph)))
    sheet, code = style(), script()
    words = {
        "theme": "" if options.theme == "auto" else f'data-theme="{options.theme}"',
        "policy": policy(code, sheet),
        "title": _escaped(title),
        "style": sheet,
        "description": _escaped(
            f"Graph of {title}. Arrow keys move, plus and minus zoom, Enter opens."
        ),
        "summary": _escaped(
            f"{summary}. The outline lists every module and operation."
        ),
        "noscript": _escaped(
            f"{title}: {counts_line(unfolded(graph))}. The page needs JavaScript; nothing is loaded."
        ),
        "script": code,
        **blocks,
    }
    # split() puts the names of slots at odd places
    for i, piece in enumerate(_SLOT.split(asset("page.html"))):
        yield words[piece] if i % 2 else piece


def policy(code: str, sheet: str) -> str:
    """A Content-Security-Policy: this script and this style, pictures made here, and
    nothing from anywhere.
    """
    rules = (
        "default-src 'none'",
        # by hash: no text of a graph can ever run as a script
        f"script-src {_hash(code)}",
        f"style-src {_hash(sheet)}",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
    return "; ".join(rules)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest())
    return f"'sha256-{digest.decode('ascii')}'"


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
        pack.put(findings={i: _finding(one) for i, one in enumerate(findings, 1)})

    return render(sketched(findings.graph, options), options, add)


def _finding(finding: Finding) -> dict[str, str]:
    """What the page says of a finding, in this order."""
    consequences = [f"{found.summary} [{found.id}]" for found in finding.consequences]
    words = {
        "names": ", ".join(finding.names),
        "where": finding.where,
        "code": "",
        "why": finding.why,
        "so": "; ".join(consequences),
        "do": finding.fix,
    }
    words = {word: one_line(text) for word, text in words.items()}
    if finding.code is not None:
        lines = load("gradviz.checks.excerpt:code_lines")(finding.code, _CODE)
        words["code"] = "\n".join(lines)

    return words


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

    return render(sketched(both.graph, options), options, add)


def _change(change: FieldChange) -> str:
    field, before, after = map(one_line, change)
    return f"{field}: {before} → {after}"


def _edges(difference: GraphDiff, both: Joined) -> list[tuple[int, int]]:
    """Edges of the joined graph that came or went, by place, each with what it did."""
    kinds = {edge[:4]: ADDED for edge in difference.added_edges}
    kinds |= {edge[:4]: REMOVED for edge in both.gone}
    every = enumerate(both.graph.edges)
    return [(i, kinds[edge[:4]]) for i, edge in every if edge[:4] in kinds]
