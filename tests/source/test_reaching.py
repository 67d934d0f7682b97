"""Which bindings of a name may have given it the value that it has where it is read."""

from __future__ import annotations

import ast
import textwrap

import pytest

from gradviz.source.bindings import Bindings
from gradviz.source.files import SourceText

CASES = {
    "the last one": ("x = 1\nx = 2\nuse(x)", [2], False),
    "both arms": ("if a:\n    x = 1\nelse:\n    x = 2\nuse(x)", [4, 2], True),
    "not the other arm": ("if a:\n    x = 1\nelse:\n    use(x)", [], True),
    "not what returns": ("x = 1\nif a:\n    x = 2\n    return\nuse(x)", [1], False),
    "the turn before": ("x = 1\nfor i in a:\n    use(x)\n    x = 2", [1, 4], False),
    "the turn that was left": (
        "x = 1\nfor i in a:\n    if i:\n        x = 2\n        continue\n    use(x)",
        [1, 4],
        False,
    ),
    "what is added to": ("x = 1\nx += use(x)", [1], False),
    "a part that is written": ("x = a\nx[0] = 1\nuse(x)", [2, 1], False),
    "a lambda": ("x = 1\nf = lambda y: use(x)\nreturn", [1], False),
    "its own parameter": ("x = 1\nf = lambda x: use(x)", [2], False),
    "a comprehension's own": ("x = 1\ny = [use(x) for x in a]", [2], False),
    "what a comprehension goes over": ("x = 1\ny = [x for x in use(x)]", [1], False),
}


@pytest.mark.parametrize("name", CASES)
def test_what_reaches_a_use(name: str) -> None:
    code, lines, may_be_another = CASES[name]
    text = f"def function():\n{textwrap.indent(code, '    ')}\n"
    source = SourceText(text.splitlines(keepends=True))
    function = source.syntax_of(source.tree.body[0])
    (call,) = [node for node in function.order if isinstance(node, ast.Call)]
    reaching = Bindings(function).reaching("x", call.args[0])
    assert [getattr(one.node, "lineno", 0) - 1 for one in reaching if one] == lines
    assert (None in reaching) == may_be_another
