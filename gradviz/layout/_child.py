"""What runs inside the child process: Graphviz from the pygraphviz wheel, or the
system's `dot` started in its place.

It is started by path, isolated and without `site`, so it must import nothing but the
standard library and pygraphviz: no gradviz, no torch, nothing of the user's. It owns
ending itself when the parent is gone, however the parent went. The parent
(`graphviz.py`) owns the time limit and the words of every error; here a failure is text
on standard error and exit code 1.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # from Linux's <sys/prctl.h>


def main(argv: list[str]) -> int:
    """`PARENT SECONDS exec COMMAND...` or
    `PARENT SECONDS draw FOLDER PROGRAM FORMAT`.
    """
    parent, seconds, task, *rest = argv
    end_with_parent(int(parent), int(seconds))

    if task == "exec":
        if hasattr(signal, "SIGPIPE"):
            # a program would inherit that Python ignores it
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execv(rest[0], rest)

    # last: nothing beside pygraphviz may hide a module of the standard library
    sys.path.append(rest[0])
    sys.stdout.buffer.write(draw(*rest[1:]))
    sys.stdout.buffer.flush()
    return 0


def end_with_parent(parent: int, seconds: int) -> None:
    """Ask the kernel to end this process with its parent (Linux), and after `seconds`
    in any case (0: never).

    The parent ends us itself whenever it can; this is for a parent that was killed.
    Both requests outlive `exec`.
    """
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
    if sys.platform != "linux":
        return
    try:
        import ctypes

        ctypes.CDLL(None).prctl(
            PR_SET_PDEATHSIG,
            signal.SIGKILL,
            0,
            0,
            0,
        )
    except (ImportError, OSError, AttributeError):
        return  # an unusual Python or C library: the alarm remains
    if os.getppid() == 1 != parent:
        os._exit(1)  # it went before we could ask


def draw(program: str, format: str) -> bytes:
    """Lay out the DOT text on standard input with the library, as the program of that
    name would.
    """
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
        code = main(sys.argv[1:])
    except Exception as error:
        sys.stderr.write(f"{error}\n")
        code = 1
    sys.exit(code)
