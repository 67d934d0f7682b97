"""The typeface of PNG and PDF files. It comes with gradviz, so that they have letters on a machine without any font.

Graphviz finds fonts through fontconfig, which reads a file that an environment variable names. Ours adds these two to the
fonts of the machine, which go on to serve for characters that the typeface lacks.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import escape

from gradviz.errors import OutputError

_FONTS = ("DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")
_CONFIGURATION = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>{folder}</dir>
<cachedir>{folder}</cachedir>
<include ignore_missing="yes">{machine}</include>
</fontconfig>
"""


@contextmanager
def with_fonts() -> Iterator[dict[str, str]]:
    """What to add to the environment of a Graphviz that paints letters; valid inside the block.

    The fonts are copied to a folder that is gone afterwards, because fontconfig writes beside the fonts that it finds, and
    into the cache that is named first: the machine's is used and left as it is. Where there is no fontconfig, as in the
    Graphviz of Windows, the variable does nothing. Raises OutputError where the folder has no room.
    """
    with tempfile.TemporaryDirectory(prefix="gradviz-") as folder:
        yield {"FONTCONFIG_FILE": str(_fill(folder))}


def _fill(folder: str) -> Path:
    """Write the fonts and their configuration, and return its path. Raises OutputError."""
    machine = os.environ.get("FONTCONFIG_FILE") or "fonts.conf"  # looked up where fontconfig would
    path = Path(folder, "fonts.conf")
    try:
        for name in _FONTS:
            Path(folder, name).write_bytes(resources.files(__name__).joinpath(name).read_bytes())
        path.write_text(_CONFIGURATION.format(folder=escape(folder), machine=escape(machine)), encoding="utf-8")
    except OSError as error:
        raise OutputError(
            f"cannot write temporary files to {folder!r}: {error.strerror or error}. "
            "Make room there, or set TMPDIR to another folder."
        ) from error
    return path
