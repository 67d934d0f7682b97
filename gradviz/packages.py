"""Lines of code as records: whose file it is, and the text of the line.

Knows how Python installs packages; does not know what counts as the user's code.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
from functools import lru_cache
from types import CodeType

from gradviz.graph import SourceLine

_INSTALLED = re.compile(r".*[/\\](?:site|dist)-packages[/\\]([^/\\]+)", re.DOTALL)
_STDLIB = tuple({sysconfig.get_path(name) + sep for name in ("stdlib", "platstdlib") for sep in "/\\"})


@lru_cache(maxsize=100_000)
def package_of(file: str) -> str:
    """The import name of the installed package, or module of Python's own library, that holds a file; "" for other files.

    >>> package_of("/venv/lib/python3.12/site-packages/transformers/models/gpt2/modeling_gpt2.py")
    'transformers'
    >>> package_of("/home/me/train.py")
    ''
    """
    installed = _INSTALLED.match(file)
    if installed is not None:
        return installed[1].partition(".")[0]
    for folder in _STDLIB:
        if file.startswith(folder):
            return re.split(r"[/\\.]", file[len(folder) :])[0]
    return ""


def code_line(code: CodeType, number: int) -> SourceLine:
    """One line of a function, without its text."""
    return SourceLine(code.co_filename, number, code.co_name, "", package_of(code.co_filename))


def with_text(line: SourceLine) -> SourceLine:
    """The same line with its text, where the file can be read."""
    return line._replace(text=linecache.getline(line.file, line.line).strip())
