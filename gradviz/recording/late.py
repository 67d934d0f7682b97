"""Acts at the moment a module has been imported, without importing it oneself.

A script may set environment variables before its own `import torch`; importing torch earlier would change what it sees.
Knows nothing of torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gradviz.recording.record import Recording


class _Watcher:
    """A finder that finds nothing itself: it lets the others find the module and watches its loader."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)  # its work is done, unless nobody finds the module
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._watch(spec.loader)
                return spec
        sys.meta_path.insert(0, self)
        return None

    def _watch(self, loader: Any) -> None:
        if not hasattr(loader, "exec_module"):
            return
        load, before = loader.exec_module, getattr(loader, "__dict__", {}).get("exec_module")

        def load_and_act(module: ModuleType) -> None:
            if before is None:  # the loader is as it was before the module's own code runs
                del loader.exec_module
            else:
                loader.exec_module = before
            load(module)
            self._action()

        try:
            loader.exec_module = load_and_act
        except AttributeError:  # a loader that takes no attributes
            return


@contextmanager
def when_imported(name: str, action: Callable[[], None]) -> Iterator[None]:
    """Run `action` once module `name` has been imported: now if it already is, else as soon as it is, or never."""
    if name in sys.modules:
        action()
        yield
        return
    watcher = _Watcher(name, action)
    sys.meta_path.insert(0, watcher)
    try:
        yield
    finally:
        if watcher in sys.meta_path:
            sys.meta_path.remove(watcher)


@contextmanager
def recording_from_torch_on() -> Iterator[Callable[[], Recording | None]]:
    """Around the user's code: record as soon as torch is there. Yields what tells the recording, once there is one.

    Before that there is nothing to record, and importing torch ourselves would change what the script sees. There is none
    either where torch cannot tell what a recording needs.
    """
    recordings: list[Recording] = []

    def begin() -> None:
        from gradviz.recording.record import record
        from gradviz.walker.private import CAN_RECORD, compiled_anew

        if CAN_RECORD:
            until.enter_context(compiled_anew())
            recordings.append(until.enter_context(record()))

    with ExitStack() as until, when_imported("torch", begin):
        yield lambda: recordings[0] if recordings else None
