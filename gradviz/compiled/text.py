"""An eager and a compiled graph side by side, as lines of text: one for each line of each module."""

from __future__ import annotations

from collections.abc import Iterator

from gradviz.compiled.compare import (
    CompiledDiff,
    Fate,
    PlaceRow,
    saved_by_recomputing,
)
from gradviz.report import labels
from gradviz.wording import bytes_text, clip, count_text, one_line, plural

_WORDS: dict[Fate, str] = {
    "same": "",
    "fused": "fused",
    "split": "split up",
    "recomputed": "recomputed",
    "dropped": "dropped",
    "added": "added",
}
_HEAD = ("before", "after", "held before", "held after", "", "module and line")


def text(diff: CompiledDiff, top: int | None) -> str:
    """The rows, at most `top` of them (0 or None for all), and what they come to."""
    return "\n".join(_lines(diff, top))


def _lines(diff: CompiledDiff, top: int | None) -> Iterator[str]:
    yield f"before: {one_line(diff.before.title or 'graph')}"
    yield f"after:  {one_line(diff.after.title or 'graph')}, compiled"
    yield ""
    shown = diff.rows[:top] if top else diff.rows
    table = [_HEAD, *map(_cells, shown)]
    widths = [max(len(row[i]) for row in table) for i in range(len(_HEAD) - 1)]
    for row in table:
        numbers = [cell.rjust(width) for cell, width in zip(row[:4], widths)]
        yield "  ".join([*numbers, row[4].ljust(widths[4]), row[5]]).rstrip()
    if len(shown) < len(diff.rows):
        yield labels.more(len(diff.rows) - len(shown))
    yield ""
    yield from sums(diff)


def fate_text(fate: Fate, recomputed: int, fused: int) -> str:
    """What became of a place: "1 recomputed, 2 fused"."""
    counted = [(recomputed, "recomputed"), (fused, "fused")]
    return ", ".join(f"{count_text(n)} {what}" for n, what in counted if n) or _WORDS[fate]


def _cells(row: PlaceRow) -> tuple[str, ...]:
    place = [one_line(row.module)] if row.module else []
    if row.source is not None:
        place.append(f"{labels.source_text(row.source)}  {clip(row.source.text.strip(), 60)}".rstrip())
    word = fate_text(row.fate, row.recomputed, row.fused)
    bytes_of = [bytes_text(nbytes) if nbytes else "" for nbytes in (row.held_before, row.held_after)]
    counts = [count_text(count) if count else "-" for count in (row.functions, row.operations)]
    return (*counts, *bytes_of, word, "  ".join(place) or "no line known")


def sums(diff: CompiledDiff) -> Iterator[str]:
    """What the rows come to."""
    functions, operations = sum(row.functions for row in diff.rows), sum(row.operations for row in diff.rows)
    again = sum(row.recomputed for row in diff.rows)
    yield (
        f"{plural(functions, 'backward function')} before; after, {plural(operations, 'operation')}, most of them in "
        f"{plural(diff.regions, 'compiled function')}"
    )
    if again:
        instead = bytes_text(saved_by_recomputing(diff.after))
        yield f"{plural(again, 'operation')} computed again in backward, instead of saving up to {instead} of results"
    yield f"held for backward: {bytes_text(diff.held_before)} before, {bytes_text(diff.held_after)} after"
    yield from (f"note: {one_line(note)}" for note in diff.after.notes)
    fused = sum(row.fused for row in diff.rows)
    if fused:
        own = "its own" if fused == 1 else "their own"
        yield f"{plural(fused, 'function')} fused: a gradient goes through, and no operation of {own} is left"
    yield "which operations share a kernel is not in the graph"
