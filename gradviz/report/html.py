"""A result as HTML for a notebook: tables with bars, and text around them as it is
printed, in the colours of the notebook.

Static: no script runs. All text goes through rich, which escapes it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from itertools import chain, groupby, repeat

from gradviz.report.notebook_theme import FOLLOWS, OUTPUT
from gradviz.report.results import console
from gradviz.report.rich_parts import Group, RenderableType, Text
from gradviz.report.table import FittedTable
from gradviz.wording import bar_part

_WIDTH = 140  # columns of a notebook's cell
_FONT = "font-family:Menlo,Consolas,'DejaVu Sans Mono',monospace;line-height:1.3"
_TONE = "light-dark(#4a7ebb,#7fb0e6)"
_SHARE = re.compile(r"([\d.]+) %")
_CELL = (
    "padding:1px 10px 1px 0;border:0;background:none;white-space:pre;vertical-align:top"
)
_COLOR = re.compile('(?<=[ "]color: )#([0-9a-f]{6})')


def html(renderable: RenderableType) -> str:
    """A renderable as one element."""
    parts = groupby(
        _parts(renderable),
        key=lambda part: isinstance(part, FittedTable),
    )
    body = "".join(
        "".join(map(_table, group)) if tables else _text(Group(*group))
        for tables, group in parts
    )
    return f'{FOLLOWS}<div class="{OUTPUT}" style="{_FONT}">{body}</div>'


def _parts(renderable: RenderableType) -> Iterator[RenderableType]:
    """What is shown one below the other."""
    if isinstance(renderable, Group):
        return chain.from_iterable(map(_parts, renderable.renderables))
    return iter((renderable,))


def _text(renderable: RenderableType) -> str:
    return f'<pre style="margin:.4em 0;background:none;font:inherit">{_colored(renderable)}</pre>'


def _colored(renderable: RenderableType) -> str:
    """Text with its colours, each also in a lighter tone for a dark notebook."""
    recorder = console(
        io.StringIO(), width=_WIDTH, record=True, color_system="truecolor"
    )
    recorder.print(renderable, soft_wrap=isinstance(renderable, Text), end="")
    return _COLOR.sub(
        _for_both, recorder.export_html(inline_styles=True, code_format="{code}")
    )


def _for_both(color: re.Match[str]) -> str:
    return (
        # half of it and half of white
        f"light-dark({color[0]}, #{int(color[1], 16) >> 1 & 0x7F7F7F | 0x808080:06x})"
    )


def _table(table: RenderableType) -> str:
    assert isinstance(table, FittedTable)
    kinds = [
        "share" if column.title == "share" else column.kind for column in table.columns
    ]
    if table.header:
        head = _row(
            kinds,
            [Text(column.title, "bold") for column in table.columns],
            "th",
        )
    else:
        head = ""

    rows = zip(
        chain(table.rows, table.summary),
        chain(table.styles, repeat("")),
    )
    body = ""
    for row, style in rows:
        body += _row(kinds, [_styled(cell, style) for cell in row])

    return f'<table style="border-collapse:collapse;border:0;font:inherit;margin:.4em {table.indent}ch">{head}{body}</table>'


def _styled(cell: Text, style: str) -> Text:
    styled = cell.copy()
    styled.stylize_before(style)
    return styled


def _row(
    kinds: Sequence[str],
    cells: Sequence[Text],
    tag: str = "td",
) -> str:
    return f'<tr style="background:none">{"".join(_cell(kind, cell, tag) for kind, cell in zip(kinds, cells))}</tr>'


def _cell(kind: str, cell: Text, tag: str) -> str:
    """One cell; a bar is drawn, and a share has one below it."""
    part = bar_part(cell.plain) if kind == "bar" else None
    if part is not None:
        bar = f"height:.8em;margin-top:.25em;background:{_TONE};width:{part:.1f}ch"
        return f'<td style="{_CELL}"><div style="{bar}"></div></td>'
    style = f"{_CELL};text-align:{'right' if kind in ('number', 'share') else 'left'}"
    share = _SHARE.fullmatch(cell.plain)
    if kind == "share" and share is not None:
        style += f";background:linear-gradient({_TONE},{_TONE}) 0 100%/{float(share[1]):.1f}% 3px no-repeat"
    return f'<{tag} style="{style}">{_colored(cell)}</{tag}>'
