"""How large the house is, and what of it is hard to read:

    python -m benchmarks.size [PATH]

Prints the tokens of the code, the functions with many branches, the class names that
mean several things, each with the places, and how dense its lines and odd its names are.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
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
    tokenize.ENDMARKER,
}
_LOOPS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

COLUMNS, DENSE, LONG = 88, 20, 12
"""Columns of a line, tokens that make it dense, lines that make a function long."""

ODD = {
    *("around", "at", "behind", "given", "here", "known"),
    *("made", "one", "own", "told", "what", "whole"),
}
"""Names that say nothing of what they hold."""


def tokens(source: str) -> int:
    """Tokens of a module, without comments, layout and docstrings: strings that are a statement.

    >>> tokens("x = 1  # one")
    3
    """
    return sum(tokens_of_lines(source).values())


def tokens_of_lines(source: str) -> Counter[int]:
    """How many of these tokens begin on each line that has any."""
    strings = {
        (node.value.lineno, node.value.col_offset)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and _is_text(node)
    }
    return Counter(
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in _LAYOUT and token.start not in strings
    )


def _is_text(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


_JAVASCRIPT = re.compile(
    r"""(?P<layout>;|\s+|//[^\n]*|/\*.*?\*/)
    |"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'
    |/(?=[^\s=])(?:[^/\\\[\n]|\\.|\[(?:[^\]\\]|\\.)*\])+/\w*  # prettier divides with spaces
    |\d[\w.]*
    |[#\w$][\w$]*
    |\.\.\.|=>|\?\.|\+\+|--|[=!]==?|(?:\*\*|&&|\|\||\?\?|<<|>>>?|[-+*/%&|^<>])=?|.""",
    re.DOTALL | re.VERBOSE,
)
_TEMPLATE = re.compile(r"(?:[^`\\$]|\\.|\$(?!\{))*(`|\$\{)", re.DOTALL)


def javascript_tokens(source: str) -> int:
    """Tokens of a module, without comments and layout. Semicolons are layout, as ends of
    lines are in Python. A template counts one for each text in it, as an f-string does.

    >>> javascript_tokens("const y = `${x + 1} px`; // one")
    8
    """
    count = place = 0
    templates: list[int] = []  # how many braces are open in each
    while place < len(source):
        closes = templates and templates[-1] == 0 and source[place] == "}"
        if source[place] == "`" or closes:
            if closes:
                templates.pop()
            text = _TEMPLATE.match(source, place + 1)
            if text and text[1] == "${":
                templates.append(0)
        else:
            text = _JAVASCRIPT.match(source, place)
            if text and templates:
                templates[-1] += (text[0] == "{") - (text[0] == "}")
        if text is None:
            raise ValueError(f"not JavaScript: {source[place : place + 40]!r}")
        count += text.lastgroup != "layout"
        place = text.end()
    return count


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


def style(sources: Mapping[str, str]) -> dict[str, float]:
    """What is hard to read in these modules, a number for each row of the table."""
    count = Counter[str]()
    for source in sources.values():
        lines = source.splitlines()
        counts = tokens_of_lines(source)
        count["tokens"] += sum(counts.values())
        count["code"] += len(counts)
        count["dense"] += sum(number >= DENSE for number in counts.values())
        count["lines"] += len(lines)
        count["over"] += sum(len(line) > COLUMNS for line in lines)
        count["comments"] += sum(line.lstrip().startswith("#") for line in lines)
        for node in ast.walk(ast.parse(source)):
            count.update(_remarks(node, lines))

    def share(part: str, total: str, scale: int = 100) -> float:
        return scale * count[part] / max(count[total], 1)

    return {
        "tokens a code line": share("tokens", "code", 1),
        f"code lines with {DENSE} tokens or more, %": share("dense", "code"),
        f"lines over {COLUMNS} columns, %": share("over", "lines"),
        f"functions of {LONG}+ lines without a blank line, %": share("solid", "long"),
        "comment lines, %": share("comments", "lines"),
        "odd names in 1,000": share("odd", "names", 1000),
        "comprehensions in 1,000 tokens": share("loops", "tokens", 1000),
        "conditional expressions in 1,000 tokens": share("choices", "tokens", 1000),
        "comprehensions with an inner one": count["nested"],
        "comprehensions with a walrus": count["walrus"],
        "comprehensions with two conditions": count["conditions"],
        "conditional expressions over two lines": count["broken"],
    }


def _remarks(node: ast.AST, lines: list[str]) -> Iterator[str]:
    """What one node adds to the counts of `style`."""
    if isinstance(node, ast.FunctionDef):
        yield from _length(node, lines)
    elif isinstance(node, _LOOPS):
        inside = [child for child in ast.walk(node) if child is not node]
        conditions = [test for loop in node.generators for test in loop.ifs]
        yield "loops"
        if any(isinstance(child, _LOOPS) for child in inside):
            yield "nested"
        if any(isinstance(child, ast.NamedExpr) for child in inside):
            yield "walrus"
        if len(conditions) > 1:
            yield "conditions"
    elif isinstance(node, ast.IfExp):
        yield "choices"
        if node.end_lineno != node.lineno:
            yield "broken"
    else:
        name = _assigned(node)
        if name is not None:
            yield "names"
        if name in ODD:
            yield "odd"


def _assigned(node: ast.AST) -> str | None:
    """The name that a node gives a value: a variable or an argument."""
    if isinstance(node, ast.arg):
        return node.arg
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    return None


def _length(function: ast.FunctionDef, lines: list[str]) -> Iterator[str]:
    start = function.body[0].lineno - 1
    if len(function.body) > 1 and _is_text(function.body[0]):
        start = function.body[0].end_lineno or start
    body = lines[start : function.end_lineno]
    if len(body) >= LONG:
        yield "long"
        if all(line.strip() for line in body):
            yield "solid"


def texts(folder: Path) -> dict[str, str]:
    """The text of every module of a folder, by its path in there."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*.py"))
    }


def trees(folder: Path) -> dict[str, ast.Module]:
    """The syntax of every module of a folder, by its path in there."""
    return {path: ast.parse(text) for path, text in texts(folder).items()}


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
    folder = Path(__file__).parent.parent / "gradviz"
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
    sources = texts(folder)
    parsed = trees(folder)

    scripts = [path.read_text("utf-8") for path in sorted(folder.rglob("*.js"))]
    lines = [
        f"{sum(map(tokens, sources.values())):,} tokens",
        f"{sum(map(javascript_tokens, scripts)):,} tokens of JavaScript in {len(scripts)} modules",
    ]
    wide = wide_functions(parsed)
    lines.append(f"{len(wide)} functions with more than {WIDE} branches")
    lines += [f"  {number} {place}" for place, number in wide.items()]

    names = ambiguous_names(parsed)
    lines.append(f"{len(names)} class names of several classes")
    lines += [f"  {name}: {', '.join(files)}" for name, files in names.items()]

    lines += [f"{value:7.4g}  {row}" for row, value in style(sources).items()]
    print("\n".join(lines))  # in one piece, so that `| head` breaks no pipe


if __name__ == "__main__":
    main()
