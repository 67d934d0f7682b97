"""How large the house is, and what of it is hard to read:

    python -m benchmarks.size [PATH]

Prints the tokens of the code, the functions with many branches, and the class names that mean several things, each with the places.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

WIDE = 15
"""Branches that a function should not have more of."""

_BRANCHES = (
    ast.If,
    ast.For,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
)
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
}


def tokens(source: str) -> int:
    """Tokens of a module, without comments, layout and docstrings: strings that are a statement.

    >>> tokens("x = 1  # one")
    3
    """
    strings = [
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    return sum(
        token.type not in {*_LAYOUT, tokenize.ENDMARKER} and token.start not in strings
        for token in found
    )


def branches(function: ast.AST) -> int:
    """Ways through a function: one, and one more for each branch, loop, handler, and each `and` and `or`. Inner functions apart."""
    count, waiting = 1, list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        if not isinstance(node, _INNER):
            count += isinstance(node, _BRANCHES) + (
                len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
            )
            waiting += ast.iter_child_nodes(node)
    return count


def trees(folder: Path) -> dict[str, ast.Module]:
    """The syntax of every module of a folder, by its path in there."""
    paths = sorted(folder.rglob("*.py"))
    return {
        str(path.relative_to(folder)): ast.parse(path.read_text(encoding="utf-8"))
        for path in paths
    }


def wide_functions(trees: Mapping[str, ast.Module]) -> dict[str, int]:
    """Functions with more than `WIDE` branches, the widest first."""
    found = {}
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if (
                isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                and branches(node) > WIDE
            ):
                found[f"{path}:{node.name}"] = branches(node)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def ambiguous_names(trees: Mapping[str, ast.Module]) -> Mapping[str, list[str]]:
    """Names of classes that several modules have a class of."""
    homes = defaultdict[str, set[str]](set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(path)
    return {
        name: sorted(files) for name, files in sorted(homes.items()) if len(files) > 1
    }


def main() -> None:
    folder = Path(
        sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "gradviz"
    )
    parsed = trees(folder)
    wide, names = wide_functions(parsed), ambiguous_names(parsed)
    print(
        f"{sum(tokens(path.read_text(encoding='utf-8')) for path in folder.rglob('*.py')):,} tokens"
    )
    print(
        f"{len(wide)} functions with more than {WIDE} branches",
        *(f"  {n} {where}" for where, n in wide.items()),
        sep="\n",
    )
    print(
        f"{len(names)} class names of several classes",
        *(f"  {n}: {', '.join(at)}" for n, at in names.items()),
        sep="\n",
    )


if __name__ == "__main__":
    main()
