"""The lines of code behind a node or a frame, as the recording and the text say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import FrameType

from gradviz.graph import SourceLine
from gradviz.packages import CallSite, script_lines
from gradviz.recording.session import running
from gradviz.source.feeding import Line, feeding, statement_at

Way = tuple[Line, ...]
"""The lines of the user's that led somewhere, innermost first."""


def fed_by(
    way: Sequence[Line],
    computed: Collection[Line],
) -> frozenset[Line]:
    """The lines whose result goes into what a line computes, called on this way; the
    line itself is one.
    """
    return statement_at(way[0]).union(*(feeding(line, computed) for line in way))


def lines_before(frame: FrameType | None) -> frozenset[Line]:
    """The lines whose results go into those that a frame, and those around it, are at."""
    way = lines_of(script_lines(frame))
    return fed_by(way, ()) if way else frozenset()


def lines_of(sources: Iterable[SourceLine]) -> Way:
    return tuple((source.file, source.line) for source in sources)


def ways_to(numbers: Iterable[int]) -> Iterator[Way]:
    """The way to each node, by sequence number; none where nothing is recorded."""
    session = running()
    recorded = session.event_log().lines if session is not None else None
    ways: dict[CallSite | None, Way] = {None: ()}

    for number in numbers:
        site = recorded.at(number) if recorded is not None else None
        if site is not None and site not in ways:
            ways[site] = lines_of(callers(site))
        yield ways[site]


def callers(site: CallSite) -> Iterator[SourceLine]:
    for caller in site.chain():
        # the lines of libraries are nobody's to change
        if caller.place is not None and not caller.place.source.package:
            yield caller.place.source
