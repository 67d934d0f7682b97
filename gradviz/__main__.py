"""`python -m gradviz` is the same as the `gradviz` command."""

from __future__ import annotations

from gradviz.cli.main import main

main()
