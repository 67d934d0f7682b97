"""Turns live models, optimizers, tensors and code into the plain facts that the rules
look at.

`collector` reads one backward call into a `BackwardCall` (`checks/call.py`), part by
part: `models`, `numbers`, `held`; `computed` and `failures` add what needs more.
What happens between calls goes into the log of the run (`checks/run.py`), by
`recorder`: optimizers and leaves are seen by `ledger`, resets, schedules and losses by
`loop`, dropout and batch normalization by `modes`, copied networks by `copies`, custom
Functions by `functions`, which replays them in a child (`slopes`). `watch` says which
calls are read as well, and `pause` when nobody needs to look any more; `behind` has the
nodes and leaves behind an output. `checks/watched.py` puts them together.
"""
