"""Makes a deep graph that was walked safe to delete.

From torch 2.12 or 2.13 on, a node's Python wrapper lives as long as the node. `~Node`
takes its edges apart iteratively only for children that nobody else refers to; a child
with a wrapper is deleted in a nested call, some 200 bytes of stack a level, and a chain
of about 40,000 nodes ends the process with a segmentation fault. Walking a graph makes
wrappers, so a walk must also make the deletion safe. The scheme: a node whose child
lies in another band of `BAND` sequence numbers keeps that child in its `metadata`,
which `~Node` drops after its edges. What is kept there is a `_Keeper`, whose `__del__`
only puts the children in a queue; the outermost `__del__` of the thread drains it. So
the nesting is at most `BAND` deep, whatever CPython's own limits are. Only direct
children are kept, which the node's own edges keep anyway: nothing lives longer than it
would have. Edges to a later number exist (a view's regenerated `grad_fn`) and are kept,
too: between two kept edges the numbers fall strictly inside one band. AccumulateGrad,
whose number is the last, has no children to nest into.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

BAND = 64
"""Sequence numbers in a band. At 64, a thread with a 64 kB stack can still delete the
graph.
"""

SMALL = 128
"""A graph of so few nodes is safe to delete without keepers, even in a thread with a 64
kB stack.
"""

KEY = "__gradviz_keeper__"


class _Queue(threading.local):
    def __init__(self) -> None:
        self.waiting: list[list[Any]] = []
        self.draining = False


_queue = _Queue()


class _Keeper:
    """Holds children of a node until the node is gone, then lets them go one after
    another instead of nested.
    """

    __slots__ = ("children",)

    def __init__(self, children: list[Any]) -> None:
        self.children = children

    def __del__(self, _queue: _Queue = _queue) -> None:
        outermost = interrupted = False
        while True:
            try:
                waiting = _queue.waiting
                if self.children:
                    waiting.append(self.children)
                    self.children = []
                if _queue.draining and not outermost:
                    break
                outermost = _queue.draining = True
                while waiting:
                    # may delete nodes, whose keepers then only append to `waiting`
                    waiting.pop()
                _queue.draining = False
                break
            except KeyboardInterrupt:
                # would be swallowed by __del__: finish first, then raise it again
                interrupted = True
            except AttributeError:  # an interrupt came before the keeper was made
                break

        if interrupted:
            with suppress(RuntimeError):  # while the interpreter ends
                _thread.start_new_thread(_interrupt_soon, ())

    def __repr__(self) -> str:
        return "<gradviz: keeps this node's children until it is deleted>"


def _interrupt_soon() -> None:
    """Interrupt the main thread once it has left `__del__`, which would swallow that
    too.
    """
    time.sleep(0.01)
    _thread.interrupt_main()


def keep(node: Any, children: Sequence[Any]) -> None:
    """Keep these direct children of `node` until it is deleted. Once per node: a second
    call changes nothing.
    """
    metadata = node.metadata
    if KEY not in metadata:
        metadata[KEY] = _Keeper(list(children))


def keep_all(waiting: list[tuple[Any, list[Any]]]) -> None:
    """`keep` for each pair, and empty the list."""
    for node, children in waiting:
        keep(node, children)
    waiting.clear()
