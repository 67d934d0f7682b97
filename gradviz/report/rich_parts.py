"""The parts of rich that results are printed with. Only this module imports them: rich
draws a random number as it is imported, and the user's own seeded draws go on as if it
had not.
"""

from __future__ import annotations

import random

_state = random.getstate()
try:
    from rich.console import (
        Console,
        ConsoleOptions,
        Group,
        RenderableType,
        RenderResult,
    )
    from rich.segment import Segments
    from rich.table import Table
    from rich.text import Text
finally:
    random.setstate(_state)

__all__ = [
    "Console",
    "ConsoleOptions",
    "Group",
    "RenderResult",
    "RenderableType",
    "Segments",
    "Table",
    "Text",
]
