"""Turns live models, optimizers, tensors and code into the plain facts that the rules
look at.

`collector` reads one backward call into a `BackwardCall` (`checks/call.py`), part by
part: `models`, `misuse`, `numbers`, `held`; `computed` and `failures` add what needs
more.
What happens between calls goes into the log of the run (`checks/run.py`), by
`recorder`: optimizers and leaves are seen by `ledger`, resets, schedules and losses by
`loop`, dropout and batch normalization by `modes`, copied networks by `copies`, custom
Functions by `functions`, which replays them in a child (`slopes`). `watch` says which
calls are read as well, and `pause` when nobody needs to look any more; `behind` has the
nodes and leaves behind an output. `checks/watched.py` puts them together.

A step, in time; `run/run.py` calls the watch, and `run/selection.py` its `before` and
`after`:

1. A backward call is about to run. `RunWatch.passes`: while `Pause` has paused, its loss
   alone is looked at. Else `RunWatch.before` notes the call and says whether it is read;
   if so, `Collector.read` reads it all, and tells the ledger which leaves it reaches.
2. The engine has ended. `RunWatch.engine_ended` says whether to look at what it left; of
   a call that was read, `Collector.afterwards` looks at its gradients, and of one that
   was not, `RunWatch.after` does, which may have it read now.
3. Between two calls, the `listeners` of all watches note what the code calls.
4. The script has ended: `RunWatch.ended`.
"""
