"""Makes empty stand-ins for the NVIDIA libraries that a CUDA build of torch wants, so that it imports without them.

    python .ci/stand_ins.py SITE_PACKAGES/torch

A wheel of torch for Linux links to some 3 GB of libraries that only a GPU needs. Each one that is not there gets a shared
object of its name beside torch's own, with the symbols and symbol versions that torch asks for. Every function in it returns
"no device", which torch reads as a machine without a GPU. Needs gcc, nm and readelf; Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

NO_DEVICE = 100  # cudaErrorNoDevice and CUDA_ERROR_NO_DEVICE
_QUIET = (
    "__cuda",
    "cudaGetLastError",
    "cudaPeekAtLastError",
)  # these say "done": they run while torch is loaded


def main(torch: Path) -> None:
    """Write the stand-ins into `torch/lib` and print their names."""
    own = sorted((torch / "lib").glob("*.so*")) + sorted(torch.glob("*.so"))
    wanted = {name for file in own for name in _needed(file)}
    there = {file.name for file in own}
    missing = sorted(name for name in wanted - there if not _loads(name))
    if not missing:
        return
    defined = {symbol for file in own for symbol, _ in _symbols(file, "--defined-only")}
    undefined = {
        one
        for file in own
        for one in _symbols(file, "--undefined-only")
        if one[0] not in defined
    }
    home = {
        version: name
        for file in own
        for version, name in _versions(file)
        if name in missing
    }
    parts: dict[str, set[tuple[str, str]]] = {name: set() for name in missing}
    for symbol, version in undefined:
        if version in home:
            parts[home[version]].add((symbol, version))
        elif not version:
            parts[missing[0]].add(
                (symbol, "")
            )  # who has it does not matter to the loader
    for name, symbols in parts.items():
        _build(torch / "lib" / name, symbols)
        print(f"{name}: {len(symbols)} symbols")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _needed(file: Path) -> list[str]:
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _run("readelf", "-dW", str(file)))


def _symbols(file: Path, which: str) -> list[tuple[str, str]]:
    """Names and versions of the dynamic symbols; weak ones that nobody defines are left out, because nobody needs them."""
    found = []
    for line in _run(
        "nm", "-D", "--with-symbol-versions", which, str(file)
    ).splitlines():
        *_, kind, symbol = line.split()
        if not (which == "--undefined-only" and kind in "wv"):
            name, _, version = symbol.partition("@")
            found.append((name, version.lstrip("@")))
    return found


def _versions(file: Path) -> list[tuple[str, str]]:
    """Each symbol version that the file needs, and the library that it is looked for in."""
    found, library = [], ""
    for line in _run("readelf", "-VW", str(file)).splitlines():
        if match := re.search(r"File: (\S+)", line):
            library = match[1]
        elif library and (match := re.search(r"Name: (\S+)\s+Flags", line)):
            found.append((match[1], library))
        elif not line.strip():
            library = ""
    return found


def _loads(name: str) -> bool:
    try:
        ctypes.CDLL(name)
    except OSError:
        return False
    return True


def _build(target: Path, symbols: Iterable[tuple[str, str]]) -> None:
    known = sorted(symbols)
    lines = [".text"]
    for answer, names in (
        (0, [name for name, _ in known if name.startswith(_QUIET)]),
        (NO_DEVICE, [name for name, _ in known if not name.startswith(_QUIET)]),
    ):
        lines += [
            f'.globl "{name}"\n.type "{name}",@function\n"{name}":'
            for name in dict.fromkeys(names)
        ]
        lines += [f"mov ${answer}, %eax", "ret"]
    versions: dict[str, list[str]] = {}
    for name, version in known:
        if version:
            versions.setdefault(version, []).append(f'"{name}";')
    with tempfile.TemporaryDirectory() as folder:
        source, script = Path(folder, "all.s"), Path(folder, "versions")
        source.write_text(
            "\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n'
        )
        script.write_text(
            "\n".join(
                f"{version} {{ {' '.join(names)} }};"
                for version, names in versions.items()
            )
        )
        options = [f"-Wl,--version-script={script}"] if versions else []
        _run(
            "gcc",
            "-shared",
            "-nostdlib",
            f"-Wl,-soname,{target.name}",
            *options,
            "-o",
            str(target),
            str(source),
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
