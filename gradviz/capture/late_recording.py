"""Records a script's module calls and source lines from the moment on that the script has imported torch.

Before that there is nothing to record, and importing torch ourselves would change what the script sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from gradviz.capture.when_imported import when_imported

if TYPE_CHECKING:
    from gradviz.capture.attribution import Attribution
    from gradviz.capture.recorder import Recording
    from gradviz.capture.unfinished import LastOutputs
    from gradviz.capture.variables import Namespace


class LateRecording:
    """What a run of a script noted. `recording` is None while torch is not imported, and where it cannot record."""

    def __init__(self) -> None:
        self.recording: Recording | None = None

    def attribution(self, variables: Sequence[Namespace]) -> Attribution | None:
        """Where nodes were made, for `capture`. The namespaces name the outermost modules."""
        return self.recording.attribution(None, variables) if self.recording is not None else None

    def last_outputs(self, error: BaseException, variables: Sequence[Namespace]) -> LastOutputs | None:
        """What had been computed when `error` ended the user's code, and where; None when nothing was recorded."""
        return self.recording.last_outputs(error, variables) if self.recording is not None else None

    def begin(self, until: ExitStack) -> None:
        """Record until the stack is closed."""
        from gradviz.capture.private import CAN_RECORD
        from gradviz.capture.recorder import record

        if CAN_RECORD:
            self.recording = until.enter_context(record())


@contextmanager
def recording_from_torch_on() -> Iterator[LateRecording]:
    """Around the user's code: record as soon as torch is there."""
    late = LateRecording()
    with ExitStack() as until, when_imported("torch", lambda: late.begin(until)):
        yield late
