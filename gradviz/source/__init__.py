"""Reads the user's code as it is written: lines, statements, and how a tensor came about.
Runs nothing.

Two ways lead in. From a code object that runs: `spots` says what is written where an
instruction stands, by `files`, `compiled` and `syntax`; `bindings`, `expressions` and
`results` say what that is made of, and where it goes. From a line: `statements` has
those of a function and of the line, `code_line` writes one anew, `search` and `feeding`
find others.
`cut` is the record of a line at which a tensor loses its graph.

Others ask it what a line says: `recording/moments.py` for the one value that a name had
at a moment (`Bindings.before`), `cuts/dataflow.py` for all that may have reached it
(`Bindings.reaching`). `inference/forwards.py` takes the syntax of a forward alone, and
follows by itself which variable stands for which module.
"""
