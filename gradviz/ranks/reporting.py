"""One report of what the ranks of one machine left: merged where graphs can be, else each text once with the ranks that say it."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from gradviz.rank import grouped, named
from gradviz.ranks.outcome import Outcome, at_line, call_words, last_words
from gradviz.ranks.part import MERGED, Given

_NOBODY_READS = 141  # as a shell reports a process whose reader went away


def report(outcomes: Sequence[Outcome], arguments: Sequence[str]) -> int:
    """Write the report to standard output, and what is missing to standard error. Returns the command's exit code."""
    try:
        return _report(outcomes, arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or Python would write again while it ends
        return _NOBODY_READS


def _report(outcomes: Sequence[Outcome], arguments: Sequence[str]) -> int:
    command = next((word for word in arguments if not word.startswith("-")), "")
    wanted = MERGED.get(command)
    usage = all(outcome.end.get("problem") and not outcome.failed for outcome in outcomes)
    if not usage and (wanted == "findings" or (wanted == "graph" and any(outcome.graph for outcome in outcomes))):
        code = _merged(outcomes, arguments)
    else:
        code = _texts(outcomes, as_json="--json" in arguments)
    for line in problems(outcomes):
        sys.stderr.write(f"{line}\n")
    return max(code, *(2 if outcome.end.get("problem") and not outcome.failed else 0 for outcome in outcomes))


def _merged(outcomes: Sequence[Outcome], arguments: Sequence[str]) -> int:
    from gradviz.cli.main import cli
    from gradviz.ranks.files import merge_files

    files = {outcome.rank: outcome.graph for outcome in outcomes if outcome.graph}
    try:
        given = Given(merge_files(files) if files else None, tuple(outcomes))
        cli(list(arguments), prog_name="gradviz", obj=given)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


# -- each text once ----------------------------------------------------------------------------------------------------


def _texts(outcomes: Sequence[Outcome], *, as_json: bool) -> int:
    said: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        text = outcome.end.get("text", "")
        if text:
            said.setdefault(_without_rank(text, outcome), []).append(outcome)
    groups = [tuple(outcome.rank for outcome in same) for same in said.values()]
    if as_json and said:
        reports = [{"ranks": list(ranks), "report": _data(text)} for text, ranks in zip(said, groups)]
        sys.stdout.write(json.dumps({"ranks": reports}, indent=2) + "\n")
    else:
        for i, (text, same) in enumerate(said.items()):
            ranks = tuple(outcome.rank for outcome in same)
            words = f"{named(ranks)} of {same[0].world}" + (", alike" if len(ranks) > 1 else "")
            sys.stdout.write(("\n" if i else "") + (f"== {named(ranks)} ==\n" if len(said) > 1 else ""))
            sys.stdout.write(text.replace(_PLACE, words))
        if len(said) > 1:
            sys.stdout.write(f"\nReports of the ranks: {grouped(groups)}.\n")
    sys.stdout.flush()
    return max((outcome.code for outcome in outcomes if outcome.end), default=0)


_PLACE = "\0rank\0"


def _without_rank(text: str, outcome: Outcome) -> str:
    """The text without what says its rank and names its files."""
    text = text.replace(f"rank {outcome.rank} of {outcome.world}", _PLACE)
    return re.sub(rf"\.rank{outcome.rank}(?=\.\w+)", ".rankN", text)


def _data(text: str) -> Any:
    try:
        return json.loads(text.replace(_PLACE, "all ranks alike"))
    except ValueError:
        return text


# -- what is missing ---------------------------------------------------------------------------------------------------


def problems(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A line for each way in which ranks failed to give a result, equal ones together."""
    said: dict[str, list[int]] = {}
    first = min(outcomes, key=lambda outcome: outcome.gone, default=None)
    for outcome in outcomes:
        words = problem_of(outcome)
        if first is not None and outcome.state == "died" and outcome.gone > first.gone:  # launchers end the others
            words += f" Rank {first.rank} was gone before."
        if words:
            said.setdefault(words, []).append(outcome.rank)
    for words, ranks in said.items():
        yield f"{named(ranks).capitalize()}: {words}"


def _died(outcome: Outcome) -> str:
    where = f" in {call_words(outcome)}" if outcome.call is not None else last_words(outcome)
    if not outcome.signal:
        return f"the process died{where}."
    name = signal.Signals(outcome.signal).name if outcome.signal in set(signal.Signals) else f"signal {outcome.signal}"
    if outcome.signal == signal.SIGTERM:
        return f"the process was told to end (SIGTERM){where}."
    more = " A process that is killed without a word mostly ran out of memory." if name == "SIGKILL" else ""
    return f"the process was ended by {name}{where}.{more}"


def problem_of(outcome: Outcome) -> str:
    """What became of a rank that left no whole result, "" for one that did."""
    if outcome.state == "ended":
        if outcome.failed:
            return f"the script failed{at_line(outcome.end.get('source'))}: {outcome.end['failed']}"
        return str(outcome.end.get("problem") or "")
    where = call_words(outcome)
    if outcome.state == "absent":
        return "the process never began."
    if outcome.state == "died":
        return _died(outcome)
    if outcome.state == "stuck":
        return f"it waits in {where} for a rank that does not come." if where else "it has not ended in time."
    return "it still runs."
