"""Our own layout engine for large drawings: rows from top to bottom, close to linear in boxes and edges.

The steps are those of Sugiyama, Tagawa and Toda, "Methods for Visual Understanding of Hierarchical System Structures"
(1981): rows, order within rows, coordinates. What makes them fast and keeps deep drawings narrow is said in `columns`,
`ordering` and `compaction`. Nothing here knows of graphs, ops or text, and nothing walks a graph by recursion.
"""

from __future__ import annotations

from gradviz.layout.layered.engine import place

__all__ = ["place"]
