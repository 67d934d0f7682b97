"""What `gradviz --version` prints, as a report of a fault needs it. Imports no torch."""

from __future__ import annotations

import platform
from importlib import metadata

from gradviz.errors import GradvizError


def versions() -> dict[str, str]:
    """Versions of what takes part."""
    from gradviz import __version__

    try:
        torch = metadata.version("torch")
    except metadata.PackageNotFoundError:
        torch = "not installed"
    return {
        "gradviz": __version__,
        "python": platform.python_version(),
        "torch": torch,
        "graphviz": _graphviz(),
    }


def _graphviz() -> str:
    """The Graphviz that paints, or why none does."""
    from gradviz.layout import graphviz

    try:
        return f"{graphviz.version()} ({graphviz.which()})"
    except GradvizError as error:
        return f"not used: {str(error).splitlines()[0]}"
