"""The viewer's types, which its comments declare, hold. Needs TypeScript's compiler, which users never do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import gradviz

WEB = Path(gradviz.__file__).parent / "page" / "web"


def test_the_types_hold() -> None:
    compiler = os.environ.get("GRADVIZ_TSC") or shutil.which("tsc")
    if compiler is None:
        pytest.skip("no TypeScript compiler: npm install -g typescript, or name it in GRADVIZ_TSC")
    done = subprocess.run([compiler, "-p", str(WEB)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
