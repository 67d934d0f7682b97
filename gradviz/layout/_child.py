"""What runs inside the child process when there is no system Graphviz: the engine from
the pygraphviz wheel. `FOLDER PROGRAM FORMAT`, with DOT text on standard input.

It is started by path, isolated and without `site`, so it must import nothing but the
standard library and pygraphviz: no gradviz, no torch, nothing of the user's. The parent
(`graphviz.py`) owns the time limit and the words of every error; here a failure is text
on standard error and exit code 1.
"""

from __future__ import annotations

import sys


def draw(folder: str, program: str, format: str) -> bytes:
    """Lay out the DOT text on standard input with the library, as the program of that
    name would.
    """
    # last: nothing beside pygraphviz may hide a module of the standard library
    sys.path.append(folder)
    from pygraphviz import graphviz

    # First the context, then the reading: making a context is what gives nodes their
    # default label "\\N".
    context = graphviz.gvContextWithBuiltins()
    graph = graphviz.agread(sys.stdin.buffer, None)
    if graphviz.gvLayout(context, graph, program.encode()):
        raise ValueError(f"{program} placed nothing")
    match graphviz.gvRenderData(context, graph, format.encode()):
        case [0, rendered, *_]:
            return bytes(rendered)
    raise ValueError(f"it could not write {format}")


if __name__ == "__main__":
    try:
        sys.stdout.buffer.write(draw(*sys.argv[1:]))
    except Exception as error:
        sys.exit(str(error))
