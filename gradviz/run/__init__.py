"""Runs the user's program and picks the graph to read: target, script, backward calls,
failure.

`run.Run` is what is wished of a run, and `captured` does it. `target` reads TARGET;
`program` runs its code as Python would, with `cells` for notebooks; `engine` sees each
backward call, and `selection` says which of them is read; `reading` and `outputs` find
what there is to look at; `ending` says how it ended. `library` keeps Python's own
functions as they were before the code ran. `forward` and `inputs` are for
`--input`, which calls a model once.
"""
