"""The code of a notebook's cells: what is left out, and that nothing else is."""

from __future__ import annotations

import json
import linecache
from typing import Any

import pytest

from gradviz.errors import TargetError
from gradviz.run.cells import Notebook, read_notebook
from gradviz.wording import notebook_of


def code(*cells: str) -> Notebook:
    found = [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return read_notebook("/home/me/n.ipynb", "n.ipynb", json.dumps({"cells": found}).encode())


@pytest.mark.parametrize(
    ("cell", "python"),
    [
        ("x = 1\n%matplotlib inline\ny = 2", "x = 1\npass  # %matplotlib inline\ny = 2\n"),
        ("for i in x:\n    !echo {i}\n    y = i", "for i in x:\n    pass  # !echo {i}\n    y = i\n"),
        ("!pip install \\\n    torch\nx = 1", "\npass  # torch\nx = 1\n"),
        ("%time y = f(x)", "y = f(x)\n"),
        ("nn.Linear?\n?nn.Linear\nnn.Linear??", "pass  # nn.Linear?\npass  # ?nn.Linear\npass  # nn.Linear??\n"),
        ("\n%%time\ny = f(x)\n", "\n\ny = f(x)\n\n"),
        ("%%gradviz --check\ny = f(x)", "\ny = f(x)\n"),
        ("%%bash\necho 'a", "\n\n"),
        ("text = '''\n%matplotlib\n!ls\n'''", "text = '''\n%matplotlib\n!ls\n'''\n"),
        ("y = (x\n% 3)", "y = (x\n% 3)\n"),
        ("y = x +\n%time z", "y = x +\n%time z\n"),  # a mistake stays as it is, for Python to tell
    ],
)
def test_a_cell_as_python(cell: str, python: str) -> None:
    (text,) = code(cell).cells.values()
    assert text == python


def test_what_is_left_out_is_said_once_with_its_place() -> None:
    notebook = code("%matplotlib inline", "", "x = 1\n!ls\n%cd ..", "%%html\n<b>")
    assert notebook.said == (
        "gradviz leaves out what only IPython runs: `%matplotlib inline` (cell 1, line 1), `!ls` (cell 2, line 2), "
        "`%cd ..` (cell 2, line 3), `%%html` (cell 3, line 1)"
    )
    assert code("x = 1").said == ""


def test_tracebacks_find_the_text_of_a_cell_by_the_name_of_its_file() -> None:
    files = list(code("a = 1", "  \n", "b = 1\nc = 2").cells)
    assert [notebook_of(file) for file in files] == [("/home/me/n.ipynb", "1"), ("/home/me/n.ipynb", "2")]
    linecache.checkcache()
    assert linecache.getline(files[1], 2) == "c = 2\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "'n.ipynb' is not a notebook that can be read: JSONDecodeError"),
        ("[]", "is not a notebook that can be read"),
        ({"cells": [{"source": ""}]}, "is not a notebook that can be read: KeyError: 'cell_type'"),
        ({"cells": [], "metadata": {"kernelspec": {"language": "R"}}}, "a notebook in 'R'"),
    ],
)
def test_what_is_no_notebook_says_so(content: Any, said: str) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(TargetError) as raised:
        read_notebook("n.ipynb", "n.ipynb", text.encode())
    assert said in str(raised.value)
