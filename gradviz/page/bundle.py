"""Joins the viewer's JavaScript modules into one script, at write time and with nothing but Python.

The modules are plain and use nothing but named imports from each other at their top. So joining is leaving the `import` lines, the
word `export` and comments out, every module after those it imports, in one scope. A test asserts that no name is declared twice.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import resources

_FIRST = "main.js"
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./([\w.]+)";\n', re.MULTILINE)
_COMMENT = re.compile(
    r"^[ \t]*/\*\*(?:[^*]|\*(?!/))*\*/[ \t]*\n", re.MULTILINE
)  # whole lines only: types and explanations
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const|let)\b)", re.MULTILINE)


def asset(name: str) -> str:
    """The text of a file in `web/`."""
    return resources.files("gradviz.page").joinpath("web", name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def script() -> str:
    """All modules as one script, in strict mode and a scope of its own."""
    parts = [_EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", asset(name)))) for name in in_order()]
    return '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"


def in_order() -> list[str]:
    """Names of the modules, every one after those it imports."""
    found: list[str] = []
    waiting = [(_FIRST, iter(_IMPORT.findall(asset(_FIRST))))]
    entered = {_FIRST}
    while waiting:
        name, imports = waiting[-1]
        following = next((one for one in imports if one not in entered), None)
        if following is None:
            found.append(name)
            waiting.pop()
        else:
            entered.add(following)
            waiting.append((following, iter(_IMPORT.findall(asset(following)))))
    return found
