"""How what a notebook shows follows its theme: what the page around an output says of
it, and the rules for our elements.

JupyterLab, VS Code, Colab and marimo mark an element around all outputs. Where there is
no mark, the reader's own setting counts.
"""

from __future__ import annotations

LIGHT = (
    ':is([data-jp-theme-light="true"],.vscode-light,.vscode-high-contrast-light,'
    'html[theme="light"],body[data-theme="light"])'
)
DARK = (
    ':is([data-jp-theme-light="false"],.vscode-dark,.vscode-high-contrast:not(.vscode-high-contrast-light),'
    'html[theme="dark"],body[data-theme="dark"])'
)
"""Selectors of the element that has the mark."""

OUTPUT = "gradviz-output"
"""The class of our elements."""
FOLLOWS = (
    f"<style>.{OUTPUT}{{color-scheme:light dark}}"
    f"{LIGHT} .{OUTPUT}{{color-scheme:light}}{DARK} .{OUTPUT}{{color-scheme:dark}}</style>"
)
"""Gives them the notebook's colour scheme, which `light-dark()` and the pictures in
them follow.
"""
