"""Watches a training run: numbers of every step, a look at the graph every so many steps, and one page of both.

    steps (a ring on the device) -> history -> page
    looks (walk, check, compare) ------------^

Reads losses and gradients where `checks.collect.recorder` hooks torch, and looks with the reader of `gradviz check`.
"""
