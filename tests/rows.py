"""Tables of tests of which half is enough for a change: the other rows are run by -m long, as before a release."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def every_other(rows: Iterable[Any]) -> list[Any]:
    """Rows for `pytest.mark.parametrize`, in their order: the first, third, ... marked long."""
    return [row if i % 2 else _long(row) for i, row in enumerate(rows)]


def _long(row: Any) -> Any:
    values = row if type(row) is tuple else (row,)
    return pytest.param(*values, marks=pytest.mark.long)
