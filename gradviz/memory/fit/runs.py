"""Runs a script in child processes that write into a copy of the folder, so that the folder itself stays as it is.

Small files are copied; what is too large or too many is linked, and said where it was changed through such a link.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gradviz.errors import ScriptError, TargetError
from gradviz.run.program import Target

_MOST_BYTES, _MOST_FILES, _MOST_ENTRIES = 100 * 2**20, 10_000, 1_000
_LINKED = {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", "site-packages"}
_ENDED, _SAID = "ended", 3
_QUIET = {"TORCHDYNAMO_DISABLE": "1", "WANDB_MODE": "disabled", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass(frozen=True)
class Specification:
    """What a child runs, and how; `batch` None leaves the script's own. The fields are those that `child` reads."""

    target: Target
    arguments: tuple[str, ...]
    name: str = ""
    batch: int | None = None
    fake: bool = False
    gpu: bool = True
    autocast: bool = False


class ChildFailed(ScriptError):
    """The script raised in a child, or the child died."""


@dataclass(frozen=True)
class Folder:
    """A copy of the current folder, and what in it is a link to the original, with its time and size then."""

    path: Path
    links: dict[str, object]

    def run(self, wanted: Sequence[Specification]) -> list[dict[str, Any]]:
        """What the children noted, which run at the same time. Raises ChildFailed with how the first to fail ended."""
        children: list[subprocess.Popen[bytes]] = []
        try:
            children += (self._start(i, specification) for i, specification in enumerate(wanted))
            return [self._result(i, child, one) for i, (child, one) in enumerate(zip(children, wanted))]
        finally:
            for child in children:
                _end(child)

    def changed(self) -> list[str]:
        """Linked files and folders that are not as they were."""
        return [path for path, before in self.links.items() if _state(path) != before]

    def _start(self, number: int, specification: Specification) -> subprocess.Popen[bytes]:
        target = replace(specification.target, place=self._place(specification.target))
        (self.path.parent / f"{number}.json").write_text(json.dumps(asdict(replace(specification, target=target))))
        files = [str(self.path.parent / f"{number}.{suffix}") for suffix in ("json", "result.json")]
        words = [sys.executable, "-m", "gradviz.memory.fit.child", *files]
        with (self.path.parent / f"{number}.err").open("wb") as said:
            return subprocess.Popen(
                words,
                cwd=self.path,
                env={**os.environ, **_QUIET},
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # with all that the script starts
            )

    def _place(self, target: Target) -> str:
        """The script in the copy, where it is below the folder."""
        if target.kind != "script":
            return target.place
        with suppress(ValueError):
            return str(Path(os.path.abspath(target.place)).relative_to(os.getcwd()))
        return os.path.abspath(target.place)

    def _result(self, number: int, child: subprocess.Popen[bytes], wanted: Specification) -> dict[str, Any]:
        child.wait()
        result = self.path.parent / f"{number}.result.json"
        told = json.loads(self._as_original(result)) if result.exists() else {"error": _ending(child.returncode)}
        if told["error"]:
            what, how = told["error"]
            batch = "" if wanted.batch is None else f" with batch {wanted.batch}"
            said = self._as_original(self.path.parent / f"{number}.err").strip().splitlines()[-_SAID:]
            words = said if what == _ENDED else []  # else the error says it
            raise ChildFailed("\n".join([f"{wanted.target.short} {what} in a child process{batch}{how}", *words]))
        if told["notes"] is None:
            raise TargetError(f"{wanted.target.short} does not import torch: nothing is trained.")
        return dict(told)

    def _as_original(self, file: Path) -> str:
        """A text that a child wrote, with the folder in place of its copy."""
        return file.read_text(encoding="utf-8", errors="replace").replace(str(self.path), os.getcwd())


@contextmanager
def copied_folder() -> Iterator[Folder]:
    """A copy of the current folder for as long as the block runs."""
    with TemporaryDirectory(prefix="gradviz-fit-", ignore_cleanup_errors=True) as parent:
        folder = Folder(Path(parent) / Path.cwd().name, {})
        _copy(Path.cwd(), folder)
        yield folder


def _ending(code: int) -> tuple[str, str]:
    return _ENDED, f" by {signal.Signals(-code).name}" if code < 0 else f" with code {code}"


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and whatever it started."""
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL) if os.name == "posix" else child.kill()
    child.wait()


def _copy(source: Path, folder: Folder) -> None:
    waiting, left, files = [(source, folder.path)], _MOST_BYTES, 0
    while waiting:
        origin, copy = waiting.pop()
        copy.mkdir(parents=True)
        for entry in sorted(os.scandir(origin), key=lambda entry: entry.name):
            size = entry.stat().st_size if entry.is_file() else 0
            files += 1
            if entry.is_dir(follow_symlinks=False) and entry.name not in _LINKED and _is_small(entry.path, files):
                waiting.append((Path(entry.path), copy / entry.name))
            elif entry.is_file(follow_symlinks=False) and size <= left and files <= _MOST_FILES:
                shutil.copy2(entry.path, copy / entry.name)
                left -= size
            elif entry.is_file() or entry.is_dir():
                (copy / entry.name).symlink_to(os.path.realpath(entry.path))
                folder.links[entry.path] = _state(entry.path)


def _is_small(path: str, files: int) -> bool:
    with suppress(OSError):
        return files <= _MOST_FILES and len(os.listdir(path)) <= _MOST_ENTRIES
    return False


def _state(path: str) -> object:
    with suppress(OSError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return None
