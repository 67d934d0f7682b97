"""A callback for the Trainer of transformers that watches the training: `trainer.add_callback(TrainerWatch(out="runs/x"))`.

The Trainer has no event before backward, where the graph is. None is needed, and `compute_loss` stays as it is: a watch sees
backward calls itself. It has no event for an exception either. `with gradviz.watch(model): trainer.train()` ends with one; this
callback ends when the Trainer is gone, or with the process.
"""

from __future__ import annotations

import weakref
from importlib import import_module
from typing import Any

from gradviz.watching.watch import Watch, watch

TrainerCallback: Any = import_module("transformers").TrainerCallback


class TrainerWatch(TrainerCallback):  # type: ignore[misc]  # which mypy need not know
    """`gradviz.watch` from the beginning to the end of `train()`. Takes its options.

    Source: https://huggingface.co/docs/transformers/main_classes/callback
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.watch: Watch | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The model and its optimizer are there."""
        self.on_train_end(args, state, control)
        self.watch = watch(given["model"], given.get("optimizer"), **self._options).__enter__()
        weakref.finalize(self, self.watch.close)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """The training has ended."""
        if self.watch is not None:
            self.watch.close()
