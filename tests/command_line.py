"""click's runner, with stdout and stderr apart in every version of click that gradviz allows."""

from __future__ import annotations

import inspect
from typing import Any

from click import testing

_MIXES = (
    "mix_stderr" in inspect.signature(testing.CliRunner).parameters
)  # click 8.1: stderr is in stdout unless refused


class Result(testing.Result):
    """What a command printed: `stdout`, `stderr`, and `output` with both, which click 8.1 leaves at stdout."""

    @property
    def output(self) -> str:
        return self.stdout + self.stderr if _MIXES else super().output


class CliRunner(testing.CliRunner):
    """Runs a command in this process."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, **({"mix_stderr": False} if _MIXES else {}))

    def invoke(self, *arguments: Any, **options: Any) -> testing.Result:
        result = super().invoke(*arguments, **options)
        result.__class__ = Result
        return result
