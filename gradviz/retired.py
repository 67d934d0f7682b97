"""Names that gradviz once had, each with one sentence that says what to use instead. No
code of theirs is left.

The command line, `Graph.save`, the notebook's magics and the package itself all answer
from these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gradviz.errors import FormatError, RetiredName

COMMANDS: dict[str, str] = {
    "fit": "gradviz no longer predicts memory: see `gradviz saved --budget`."
}
"""Commands; a sentence each."""

_WATCH = (
    "gradviz no longer watches a training run: use `gradviz check train.py`, "
    "or gradviz.check(loss, model=model) inside the loop (docs/hosts.md)"
)

NAMES: dict[str, str] = {
    "apply_checkpoints": "gradviz no longer wraps modules: call torch.utils.checkpoint.checkpoint(module, x, use_reentrant=False) "
    "for each path in plan.steps.",
    "Graph.to_dataframe": "a Graph is no table: pandas.DataFrame(gradviz.saved(graph).rows) is one of its memory, "
    "and pandas.DataFrame(graph.edges) has its edges.",
    "Graph[path]": "a Graph has no parts any more: graph.fold(focus=path) opens one module, "
    "and gradviz.walk(output of the module) has its graph alone.",
    **dict.fromkeys(
        ("draw", "render", "plot", "Graph.draw", "Graph.render", "Graph.plot"),
        "gradviz has no such function: gradviz.walk(loss).save('net.svg') draws, and gradviz.show(loss) shows the page.",
    ),
    "tree": "gradviz has no function tree: gradviz.walk(loss).tree() is it.",
    "watch": _WATCH,
    "integrations": _WATCH,
}
"""Attributes of `gradviz` and its objects; a sentence each."""

ANY = ("",)
"""Every value of an option."""


class RetiredOption(NamedTuple):
    """An option, or some values of one that stays."""

    flag: str
    instead: str
    commands: tuple[str, ...] = ()  # () for every command
    values: tuple[str, ...] = ANY  # those that are retired
    # those that are the default now: a note, and the command goes on
    harmless: tuple[str, ...] = ()
    takes_value: bool = True
    # the words that it is another name of, {} for its value: a note, and it goes on
    becomes: str = ""
    python: bool = True  # whether `Graph.save` has lost it, too


_RECORDS = (
    "gradviz always records modules and lines. "
    "To read a graph without them, call gradviz.walk(loss) in the script."
)
_TREE = (
    "gradviz render no longer chooses the rows of a text file: "
    "gradviz tree train.py --by node > tree.txt does."
)
_MERGE = (
    "gradviz merge no longer takes all options of a picture. Write the merged graph, and draw that: "
    "gradviz merge net.rank*.json -o all.json, then gradviz render all.json --details."
)
_TABLES = ("saved", "tensors", "flow", "paths")
_NO = "That is the default, so leave it out."
_OF_A_PICTURE = (
    "--names",
    "--expand",
    "--views",
    "--leaves",
    "--theme",
    "--color",
    "--numbers",
    "--by",
    "--columns",
    "--max-depth",
    "--max-rows",
    "--saved",
    "--details",
    "--attributes",
)

OPTIONS: tuple[RetiredOption, ...] = (
    RetiredOption(
        "--ranks",
        "Each rank now reports for itself and writes a file of its own: compare them with gradviz merge net.rank*.json.",
        harmless=("each",),
    ),
    RetiredOption(
        "--ranks-wait",
        "No rank waits for another any more: where one hangs, py-spy dump --pid PROCESS shows the line.",
        harmless=ANY,
    ),
    RetiredOption(
        "--layout",
        "gradviz has one layout, so leave --layout out. For Graphviz, write DOT: gradviz render train.py -o net.dot.",
        harmless=("layered", "auto"),
    ),
    RetiredOption(
        "--style",
        "gradviz has one look, that of --style paper, so leave --style out.",
        ("render", "merge", "diff"),
        harmless=ANY,
    ),
    RetiredOption(
        "--layout-timeout",
        "gradviz no longer waits for Graphviz to place boxes, so leave --layout-timeout out.",
        harmless=ANY,
    ),
    RetiredOption(
        "--try",
        "gradviz no longer tries fixes: running a script again overwrites its files. Make the change that `fix:` says, "
        "and run gradviz check again.",
        ("check",),
        takes_value=False,
    ),
    RetiredOption(
        "--by",
        "gradviz flow no longer splits a loss into its terms. For one of them, name its variable: "
        "gradviz flow train.py:reconstruction --at 1.",
        ("flow",),
        values=("term",),
    ),
    RetiredOption(
        "--by",
        "gradviz flow --json has every function and edge; --by leaf lists the leaves.",
        ("flow",),
        values=("node", "edge"),
    ),
    RetiredOption(
        "--by",
        "gradviz saved --by tensor lists every storage, --by line the lines of code.",
        ("saved",),
        values=("node", "dtype", "op-line"),
    ),
    RetiredOption(
        "--by",
        "gradviz saved train.py --by line lists the lines of code.",
        ("tree",),
        values=("line",),
    ),
    RetiredOption(
        "--format",
        "gradviz prints no Markdown of findings. Paste what gradviz check train.py --verbose prints.",
        ("info", "check"),
        values=("md",),
    ),
    RetiredOption(
        "--vanishing",
        "gradviz check no longer tells of gradients that vanish: gradviz flow train.py shows that of each module.",
        ("check",),
    ),
    RetiredOption(
        "--exploding",
        "The limit of exploding-gradient is fixed now: gradviz flow train.py shows the gradient of each module.",
        ("check",),
    ),
    RetiredOption(
        "--format",
        "gradviz prints no line for each finding: editors show those of gradviz check --format sarif at their lines.",
        ("check",),
        values=("line",),
    ),
    RetiredOption(
        "--run-custom",
        "gradviz check calls no custom backward: gradviz flow train.py --run-custom measures the gradients behind it.",
        ("check",),
        harmless=ANY,
        takes_value=False,
    ),
    RetiredOption(
        "--format",
        "gradviz info prints one screen, or JSON with --json.",
        ("info",),
        values=("json",),
        becomes="--json",
    ),
    RetiredOption("--format", _NO, ("info",), values=("text",), harmless=ANY),
    RetiredOption(
        "--format",
        "gradviz prints no CSV: --json has every row with exact numbers.",
        _TABLES,
        values=("csv",),
    ),
    RetiredOption(
        "--format",
        "--format json is --json here.",
        _TABLES,
        values=("json",),
        becomes="--json",
    ),
    RetiredOption("--format", _NO, _TABLES, values=("table",), harmless=ANY),
    RetiredOption(
        "--time",
        "`gradviz saved` no longer measures time: see `gradviz tree train.py --time`.",
        ("saved",),
        takes_value=False,
    ),
    RetiredOption(
        "--to-end",
        "--to-end is --continue now.",
        ("check",),
        takes_value=False,
        becomes="--continue",
    ),
    RetiredOption(
        "--color",
        "gradviz tree --color time is gradviz tree --time now.",
        ("tree",),
        values=("time",),
        becomes="--time",
    ),
    RetiredOption(
        "--color",
        "gradviz tree has no --color. The column saved says the bytes of each row; "
        "gradviz flow lists gradients.",
        ("tree",),
        harmless=("kind", "memory"),
    ),
    RetiredOption(
        "--max-depth",
        "gradviz tree has no --max-depth: --depth says how deep it is.",
        ("tree",),
        becomes="--depth {}",
    ),
    RetiredOption(
        "--columns",
        "gradviz tree chooses its columns by itself, so leave --columns out.",
        ("tree",),
        harmless=ANY,
    ),
    RetiredOption(
        "--attributes",
        "A box no longer lists other saved values: its tooltip and the page do, so leave --attributes out.",
        ("render", "tree"),
        harmless=ANY,
        takes_value=False,
    ),
    RetiredOption(
        "--direction",
        "A picture runs down or to the right, whichever fits a page: leave --direction out, or give down or right.",
        values=("up", "left"),
        harmless=("up", "left"),
    ),
    RetiredOption(
        "--numbers",
        "A picture no longer numbers its boxes: a page (-o net.html) plays backward in its order.",
        ("render",),
        harmless=ANY,
        takes_value=False,
    ),
    RetiredOption(
        "--link-source",
        "A picture no longer opens lines of code: the interactive page shows that of each box, "
        "gradviz render train.py -o net.html.",
        harmless=("none",),
    ),
    *(
        RetiredOption(flag, _RECORDS, harmless=ANY, takes_value=False)
        for flag in ("--record", "--no-record")
    ),
    *(
        RetiredOption(flag, _TREE, ("render",), harmless=ANY, python=False)
        for flag in ("--by", "--columns", "--max-depth", "--max-rows")
    ),
    *(RetiredOption(flag, _MERGE, ("merge",)) for flag in _OF_A_PICTURE),
    *(
        RetiredOption(flag, _NO, harmless=ANY, takes_value=False)
        for flag in ("--no-numbers", "--no-saved", "--no-details", "--no-attributes")
    ),
)
"""In the order in which they are looked through."""

CHECKS: dict[str, str] = {
    "accumulation": "",
    "alias": "",
    "all-zero": "",
    "cancelled-gradient": "",
    "collective-order": "",
    "deep-graph": "",
    "double-backward": "",
    "draw-without-gradient": "",
    "duplicate-saved": "",
    "eval-while-training": "wrong-mode",
    "first-order": "",
    "graph-break": "",
    "hooks-present": "",
    "idle-schedule": "",
    "inverted-mask": "",
    "large-saved": "",
    "lost-averages": "",
    "lost-numbers": "",
    "missing-rank": "",
    "mixed-samples": "",
    "moving-statistics": "",
    "no-effect": "",
    "not-called": "",
    "padding-counted": "",
    "paid-frozen": "",
    "pile-of-hooks": "",
    "ranks-differ": "",
    "rate-near-zero": "",
    "ready-twice": "",
    "requires-grad-input": "",
    "reshape-mixes": "",
    "saturated": "",
    "saved-cast": "",
    "seeded-again": "",
    "step-size": "",
    "swallowed-update": "",
    "tied-parameter": "",
    "torch-warning": "",
    "two-optimizers": "",
    "unseen-change": "",
    "untied": "",
    "unused-on-some-ranks": "",
    "useless-labels": "",
    "vanishing-gradient": "",
    "wasted-gradient": "",
    "wrong-sign": "",
    "zero-derivative": "",
    "zero-gradient": "",
    "zero-start": "",
}
"""Ids of checks, which `--only`, `--ignore` and `--explain` take with a note, and the
check that one is part of now, or "".
"""

_CHECK = "{} is retired: no report of a real program needed it."
_INSTEAD = {
    **dict.fromkeys(
        ("ranks-differ", "unused-on-some-ranks"),
        " gradviz merge net.rank*.json compares the graph files of ranks.",
    ),
    **dict.fromkeys(
        ("vanishing-gradient", "zero-gradient"),
        " gradviz flow train.py shows the gradient of each module.",
    ),
}
_MERGED = "{} is part of {} now: gradviz check --explain {}."


def attribute(name: str) -> Any:
    """What the package answers for an attribute that it does not have. Raises
    AttributeError, with the sentence if there is one.

    >>> attribute("wlak")
    Traceback (most recent call last):
    AttributeError: module 'gradviz' has no attribute 'wlak'
    """
    if name in NAMES:
        raise RetiredName(NAMES[name])
    place, _, attribute = name.rpartition(".")
    owner = f"{place!r} object" if place else "module 'gradviz'"
    raise AttributeError(f"{owner} has no attribute {attribute!r}")


def without_retired_flags(
    command: str, words: Sequence[str], note: Callable[[str], object]
) -> list[str]:
    """The words of a command line without retired options that change nothing; `note`
    gets a sentence for each.

    Raises FormatError with the sentence of one that would have changed something. Words
    after `--` are the script's.
    """
    kept: list[str] = []
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            return [*kept, word, *waiting]

        flag, equals, value = word.partition("=")
        if not equals and waiting:
            value = waiting[0]
        row = _row(command, flag, value)
        if row is None:
            kept.append(word)
            continue

        if row.takes_value and not equals:
            del waiting[:1]
        _answer(row, value, note)
        if row.becomes:
            kept += row.becomes.format(value).split()
    return kept


def without_retired_names(
    command: str, options: Mapping[str, Any], note: Callable[[str], object]
) -> dict[str, Any]:
    """The same for options by name, as `Graph.save(layout="layered")` gives them."""
    kept = {}
    for name, value in options.items():
        row = _row(command, "--" + str(name).replace("_", "-"), str(value))
        if row is None or not row.python:
            kept[name] = value
        else:
            _answer(row, str(value), note)
    return kept


def without_retired_checks(
    ids: Iterable[str], note: Callable[[str], object]
) -> list[str]:
    """The ids of checks that there are; `note` gets a sentence for each retired one."""
    kept = []
    for name in ids:
        if name in CHECKS:
            note(about_check(name))
        else:
            kept.append(name)
    return kept


def present_checks(
    only: Iterable[str], ignore: Iterable[str], note: Callable[[str], object]
) -> tuple[list[str], list[str]]:
    """The same for a choice of checks. Raises FormatError where all of `only` are
    retired, since none to run is no choice.
    """
    only = list(only)
    if only and all(name in CHECKS for name in only):
        raise FormatError(" ".join(about_check(name) for name in only))
    return without_retired_checks(only, note), without_retired_checks(ignore, note)


def about_check(name: str) -> str:
    """What is said of a retired check."""
    successor = CHECKS[name]
    if successor:
        return _MERGED.format(name, successor, successor)
    return _CHECK.format(name) + _INSTEAD.get(name, "")


def _row(command: str, flag: str, value: str) -> RetiredOption | None:
    for row in OPTIONS:
        is_this = row.flag == flag and (not row.commands or command in row.commands)
        if is_this and (row.values == ANY or value in row.values):
            return row
    return None


def _answer(row: RetiredOption, value: str, note: Callable[[str], object]) -> None:
    if row.becomes or row.harmless == ANY or value in row.harmless:
        note(row.instead)
    else:
        raise FormatError(row.instead)
