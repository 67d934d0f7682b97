"""A callback for Lightning that watches the fit: `Trainer(callbacks=[LightningWatch(out="runs/x")])`."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from gradviz.watching.watch import Watch, watch

_OLD = "pytorch_lightning" in sys.modules and "lightning" not in sys.modules  # two packages with one code
Callback: Any = import_module("pytorch_lightning" if _OLD else "lightning.pytorch").Callback


class LightningWatch(Callback):  # type: ignore[misc]  # which mypy need not know
    """`gradviz.watch` from the first training step to the end of the fit. Takes its options.

    Source: https://lightning.ai/docs/pytorch/stable/extensions/callbacks.html
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self.watch: Watch | None = None

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """The model and its optimizers are there."""
        self.watch = watch(pl_module, trainer.optimizers, **self._options).__enter__()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The fit has ended."""
        self.on_exception(trainer, pl_module, None)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException | None) -> None:
        """The fit has failed."""
        if self.watch is not None:
            self.watch.close(exception)
