"""Analyses that need real gradients: flow, and the chain rule path by path.

`live` keeps the nodes of a graph alive, and says which may be called; `replay` calls
them one at a time, in the engine's order. `flow` measures what comes out, `paths`
follows it, `numbers` and `values` read tensors. `table` words the results.
"""
