"""What a program says: the code of a statement; and, as graph files of version 1 had it,
its calls of functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradviz.graph.records import Construct, FunctionCall, SourceLine

_CALLS = ("function", "gradient")


def written_code(text: str, line: SourceLine | None) -> str:
    """The code of a statement that is all of its line: `x * 2` of `y = x * 2` and of
    `return x * 2`; "" where it is not.
    """
    for head in (f"{text} = ",) if text else ("return ",):
        if line is not None and line.text.startswith(head):
            return line.text.removeprefix(head)
    return ""


def code_of(construct: Construct) -> str:
    """The code that computes what a statement assigns; of a loop, the variables that one
    turn hands to the next.
    """
    if construct.kind != "statement":
        return construct.code
    return construct.code or written_code(construct.text, construct.source)


def functions_of(program: Sequence[Construct]) -> tuple[FunctionCall, ...]:
    """The calls of functions, each with what its loops, statements and calls made.

    >>> functions_of([Construct("function", "f"), Construct("loop", "for x in xs", parent=0, nodes=(3, 4))])[0].nodes
    (3, 4)
    """
    number: dict[int, int] = {}
    around: list[int | None] = []  # the innermost call of each construct
    for i, construct in enumerate(program):
        if construct.kind in _CALLS:
            number[i] = len(number)
        outer = around[construct.parent] if construct.parent is not None else None
        around.append(i if i in number else outer)

    nodes: dict[int | None, list[int]] = {}
    scopes: dict[int | None, list[int]] = {}
    for i, construct in enumerate(program):
        nodes.setdefault(around[i], []).extend(construct.nodes)
        scopes.setdefault(around[i], []).extend(construct.scopes)

    calls = []
    for i in number:
        construct = program[i]
        outer = around[construct.parent] if construct.parent is not None else None
        calls.append(
            FunctionCall(
                construct.source or SourceLine("", 0, construct.text),
                number[outer] if outer is not None else None,
                construct.scope,
                tuple(nodes.get(i, ())),
                tuple(scopes.get(i, ())),
                construct.kind == "gradient",
            )
        )
    return tuple(calls)


def program_of(functions: Sequence[FunctionCall]) -> tuple[Construct, ...]:
    """Calls of functions as the program that a file of version 1 knows."""
    return tuple(
        Construct(
            "gradient" if call.gradient else "function",
            "grad" if call.gradient else call.source.function,
            call.source,
            call.parent,
            call.scope,
            call.nodes,
            call.scopes,
        )
        for call in functions
    )
