"""Graphs that are walked and then deleted, each run in a process of its own: `python deletion_cases.py CASE [SIZE]`.

A failure here is a segmentation fault, so the tests look at the exit code.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch

import gradviz

Tensor = torch.Tensor


def leaf() -> Tensor:
    return torch.ones(2, requires_grad=True)


def chain(size: int, start: Tensor | None = None) -> Tensor:
    y = leaf() if start is None else start
    for _ in range(size):
        y = y * 1.0
    return y


def deep_chain(size: int) -> None:
    y = chain(size)
    assert len(gradviz.walk(y, saved=False).nodes) == size + 1
    del y


def saved_chain(size: int) -> None:
    y = leaf()
    for _ in range(size):
        y = torch.tanh(y)
    gradviz.walk(y)
    del y


def dense(size: int) -> None:
    """Every step uses several earlier results; the edge to the step before comes last."""
    random.seed(1)
    made = [leaf()]
    for _ in range(size):
        y = made[-1]
        for back in random.sample(made[-11:], min(3, len(made))):
            y = back + y
        made.append(y)
        del made[:-12]
    y = made[-1]
    del made
    gradviz.walk(y, saved=False)
    del y


def random_dag(size: int) -> None:
    random.seed(2)
    made = [leaf()]
    for _ in range(size):
        made.append(random.choice(made) + made[-1])
    roots = [made[-1], *random.sample(made, 20)]
    del made
    gradviz.walk(roots, saved=False)
    while roots:
        roots.pop(random.randrange(len(roots)))


class Identity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


def custom(size: int) -> None:
    y = leaf()
    for i in range(size):
        y = Identity.apply(y) if i % 1000 == 0 else y * 1.0
    gradviz.walk(y, saved=False)
    del y


def views_written_in_place(size: int) -> None:
    base = leaf() * 1.0
    for _ in range(size):
        base[0:1].mul_(1.0)
    gradviz.walk(base, saved=False)
    del base


def root_first(size: int) -> None:
    middle = chain(size)
    root = chain(size, middle)
    gradviz.walk(root, saved=False)
    del root
    gc.collect()
    del middle


def overlapping(size: int) -> None:
    """Graphs that share a part, walked again and again while they grow, with backward and collections in between."""
    random.seed(3)
    step = size // 40
    tips = [chain(step), chain(step)]
    for i in range(40):
        at = random.randrange(len(tips))
        tips[at] = chain(step, tips[at] + tips[at - 1])
        gradviz.walk(tips[at], saved=False)
        gradviz.walk(tips, saved=bool(i % 10 == 0))
        if i % 8 == 3:
            tips[at].sum().backward(retain_graph=True)
            gc.collect()
        if i % 5 == 4:
            tips.append(chain(step, tips[at]))
            del tips[random.randrange(len(tips) - 1)]
    random.shuffle(tips)
    while tips:
        tips.pop()


def small_walks_beside(size: int) -> None:
    """A growing graph that is never walked: only its newest result is a variable when something small is."""
    small, growing = leaf() * 2, leaf()
    for _ in range(size):
        growing = growing * 1.0
        gradviz.walk(small, saved=False)
    del growing


def small_walks_of_a_growing_graph(size: int) -> None:
    y = leaf()
    for i in range(size):
        y = y * 1.0
        if i < 400 or i % 5000 == 0:
            gradviz.walk(y, saved=False)
    del y


def small_stack(size: int) -> None:
    """Deleted in a thread that has little room."""
    y = [chain(size)]
    gradviz.walk(y[0], saved=False)
    threading.stack_size(64 * 1024)
    thread = threading.Thread(target=y.clear)
    thread.start()
    thread.join()


def small_stack_small_graph(size: int) -> None:
    """The largest graph that gets no keepers."""
    small_stack(126)


def after_backward(size: int) -> None:
    y = chain(size).sum()
    gradviz.walk(y)
    y.backward()
    gradviz.walk(y)
    del y


def at_exit(size: int) -> None:
    globals()["kept"] = chain(size)
    gradviz.walk(globals()["kept"], saved=False)


def interrupted(size: int) -> None:
    """A walk that Ctrl-C stops halfway."""
    y = chain(size)
    timer = threading.Timer(0.15, __import__("_thread").interrupt_main)
    timer.start()
    try:
        while True:
            gradviz.walk(y, saved=False)
    except KeyboardInterrupt:
        pass
    del y


def unprotected(size: int) -> None:
    """The control: the same nodes touched by a bare walk. This is what crashes."""
    y = chain(size)
    nodes = [y.grad_fn]
    seen = set(nodes)
    for node in nodes:
        for child, _ in node.next_functions:  # type: ignore[union-attr]
            if child is not None and child not in seen:
                seen.add(child)
                nodes.append(child)
    del nodes, seen, node, child
    del y


# A thread with half a megabyte crashes at about 2,500 nested deletions, the main thread at 40,000: so smaller graphs will do.
CASES: dict[str, tuple[Callable[[int], None], int]] = {
    "saved_chain": (saved_chain, 5_000),
    "dense": (dense, 8_000),
    "random_dag": (random_dag, 10_000),
    "custom": (custom, 10_000),
    "views_written_in_place": (views_written_in_place, 8_000),
    "root_first": (root_first, 8_000),
    "overlapping": (overlapping, 8_000),
    "small_walks_beside": (small_walks_beside, 3_000),
    "small_walks_of_a_growing_graph": (small_walks_of_a_growing_graph, 10_000),
    "small_stack": (small_stack, 20_000),
    "small_stack_small_graph": (small_stack_small_graph, 126),
    "after_backward": (after_backward, 10_000),
    "unprotected": (unprotected, 10_000),
}
IN_MAIN_THREAD: dict[str, tuple[Callable[[int], None], int]] = {
    "deep_chain": (deep_chain, 200_000),
    "interrupted": (interrupted, 100_000),  # only the main thread is interrupted
    "at_exit": (at_exit, 60_000),
}


def in_a_small_thread(run: Callable[[int], None], size: int) -> None:
    failed: list[BaseException] = []

    def body() -> None:
        try:
            run(size)
        except BaseException as error:
            failed.append(error)

    threading.stack_size(512 * 1024)
    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


if __name__ == "__main__":
    name = sys.argv[1]
    function, default = CASES.get(name) or IN_MAIN_THREAD[name]
    size = int(sys.argv[2]) if len(sys.argv) > 2 else default
    if name in CASES:
        gradviz.walk(leaf() * 2)  # imports what it needs where there is room
        in_a_small_thread(function, size)
    else:
        function(size)
    print("done", flush=True)
    if name != "at_exit":
        os._exit(0)  # taking torch apart takes longer than most cases
