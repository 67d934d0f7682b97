"""Takes up what torch warns of at a line of the user's, as Python shows it. Changes no
filter and no message.
"""

from __future__ import annotations

import re
import warnings
from types import FrameType
from typing import Any

from gradviz.checks.collect.calls import Observer, taps
from gradviz.checks.collect.lines import users_frame
from gradviz.packages import is_foundation, package_of

_INTERNALLY = re.compile(r"\s*\(Triggered internally at .*?\)", re.DOTALL)
"""What torch adds to what it says in C++."""


class WarningWatch(Observer):
    """Of one run."""

    @taps(warnings._showwarnmsg)  # type: ignore[attr-defined]
    def _shown(
        self,
        frame: FrameType,
        shown: Any,
        *_: Any,
    ) -> None:
        """A warning is shown: one of each line, unless a filter says otherwise."""
        text, caller, users = str(shown.message), frame.f_back, users_frame(frame)
        if (
            caller is None
            or users is None
            or not issubclass(shown.category, UserWarning)
        ):
            return

        torchs = _INTERNALLY.search(text) or is_foundation(caller.f_code.co_filename)
        if torchs and not package_of(users.f_code.co_filename):
            self._note(
                "warned",
                self._place(users),
                _INTERNALLY.sub("", text),
            )
