"""Which backward calls belong to one step, and what holds the graphs of earlier ones."""

from __future__ import annotations

from array import array

from gradviz.checks.collect.held import held_since
from gradviz.checks.collect.lines import Variables
from gradviz.checks.run import TrainingRun
from gradviz.walker.private import peek_sequence


class Steps:
    """Of one run. `ends` are the sequence numbers at the last call of each step that is
    over, `before` is that at the call before the last one. `updated`: an optimizer has
    taken a step since the last one.
    """

    def __init__(self, run: TrainingRun) -> None:
        self._run, self.updated = run, False
        self.ends = array("Q")
        self.before = self._last = 0

    def backward(self) -> None:
        """A call comes. Those between which no optimizer took a step belong to one step;
        where the code has none, nobody sees its updates, and each call is a step.
        """
        if self._last and (self.updated or not self._run.optimizers):
            self.ends.append(self._last)
        self.before, self._last = self._last, peek_sequence()
        self.updated = False

    def look(self, variables: Variables) -> None:
        """Note the variables that hold the graphs of several steps."""
        for history in held_since(variables, self.ends) if self.ends else ():
            # code elsewhere calls it by another name: `self.total` of `trainer.total`
            name = history.name.rpartition(".")[2]
            before = self._run.held.get(name)
            # nobody may have watched the steps that it holds now
            if before is not None and history.source is None:
                history = history._replace(source=before.source, added=before.added)
            self._run.held[name] = history
