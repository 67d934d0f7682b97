"""No command replaces a file that it reads or runs, and only `--force` one that gradviz did not write."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from gradviz.draw.output import FORMATS
from tests.cli.conftest import Gradviz
from tests.cli.scripts import script
from tests.rows import every_other

HELPED = "import torch, helper\nw = torch.ones(2, requires_grad=True)\nloss = (w * helper.TWO).sum()\nloss.backward()\n"
OURS = {
    "render t.py -o {}": "the_t.svg",
    "check t.py --html {}": "the_t.html",
    "diff t.py t.py -o {}": "the_d.html",
    "merge a.json b.json -o {}": "the_m.json",
}


@pytest.fixture
def folder(tmp_path: Path, gradviz: Gradviz) -> Path:
    script(tmp_path, HELPED, "t.py")
    script(tmp_path, "TWO = 2\n", "helper.py")
    (tmp_path / "package").mkdir()
    script(tmp_path, HELPED, "package/inside.py")
    for name in "ab":
        gradviz("render", "t.py", "-o", f"{name}.json")
    (tmp_path / "link.svg").symlink_to("t.py")
    (tmp_path / "hard.svg").hardlink_to(tmp_path / "helper.py")
    return tmp_path


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights on Windows")
@pytest.mark.parametrize("force", ["", " --force"])
@pytest.mark.parametrize(
    "command",
    every_other(
        [
            "render t.py -o t.py --format svg",
            "render t.py -o ../{folder}/t.py --format json",
            "render t.py -o helper.py --format svg",
            "render t.py -o link.svg",
            "render t.py -o hard.svg",
            "render t.py:loss -o t.py --format svg",
            "render t.py -o t.py --format dot --continue",
            "render -m package.inside -o package/inside.py --format svg",
            "render package.inside:loss -o package/inside.py --format svg",
            "render a.json -o a.json",
            "check t.py --html t.py",
            "check t.py --html helper.py",
            "diff a.json t.py -o a.json",
            "diff a.json t.py -o t.py",
            "diff t.py t.py -o helper.py",
            "merge a.json b.json -o a.json",
            "merge a.json b.json -o b.json",
        ]
    ),
)
def test_what_a_command_reads_is_never_replaced(gradviz: Gradviz, folder: Path, command: str, force: str) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
    sys.path.insert(0, str(folder))
    try:
        output = gradviz(*(command + force).format(folder=folder.name).split(), code=2).output
    finally:
        sys.path.remove(str(folder))
    assert "Error: cannot write" in output and "Traceback" not in output
    assert {path: path.read_bytes() for path in before} == before
    assert not force or "--force" not in output


@pytest.mark.parametrize(("command", "name"), OURS.items())
def test_a_file_without_our_mark_is_replaced_only_by_force(
    gradviz: Gradviz, folder: Path, command: str, name: str
) -> None:
    words = command.format(name).split()
    for text in ("<svg/>", '{"format": "mine"}', "# gradviz in this project\n"):
        (folder / name).write_text(text)
        assert "did not write it" in gradviz(*words, code=2).output
        assert (folder / name).read_text() == text
    gradviz(*words, "--force")
    assert (folder / name).stat().st_size > 300
    gradviz(*words)  # now it is ours
    (folder / name).write_bytes(b"")
    gradviz(*words)  # nothing is lost


def test_a_default_name_asks_too(gradviz: Gradviz, folder: Path) -> None:
    (folder / "t.svg").write_text("<svg>drawn by hand</svg>")
    gradviz("render", "t.py", code=2)
    assert (folder / "t.svg").read_text() == "<svg>drawn by hand</svg>"
    (folder / "gradviz_demo.html").write_text("<p>notes</p>")
    gradviz("demo", code=2)
    assert (folder / "gradviz_demo.html").read_text() == "<p>notes</p>"


def test_what_the_script_writes_itself_stays(gradviz: Gradviz, folder: Path) -> None:
    script(folder, "open('t.svg', 'w').write('of the script')\n" + HELPED, "t.py")
    assert "did not write it" in gradviz("render", "t.py", code=2).output
    assert (folder / "t.svg").read_text() == "of the script"


@pytest.mark.parametrize("name", ["notes.py", "notes.ipynb", "notes.toml", "notes.PY"])
def test_another_suffix_needs_force(gradviz: Gradviz, folder: Path, name: str) -> None:
    for words in (("check", "t.py", "--html"), ("render", "t.py", "--format", "svg", "-o")):
        assert "the suffix should be .svg" in gradviz(*words, name, code=2).output.replace(".html or .htm", ".svg")
        assert not (folder / name).exists()
    gradviz("render", "t.py", "--format", "svg", "-o", name, "--force")
    assert "<svg" in (folder / name).read_text()
    gradviz("render", "t.py", "--format", "svg", "-o", "no_suffix")


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_has_a_mark_by_which_it_is_drawn_again(gradviz: Gradviz, folder: Path, format: str) -> None:
    for options in ((), ("--title", "mine")):
        gradviz("render", "t.py", "-o", f"x{FORMATS[format].suffixes[0]}", *options)
    with open(folder / f"x{FORMATS[format].suffixes[0]}", "rb") as file:
        taken_over = b"mine: " + file.read() + b"\n\nmore\n"
    Path(f"x{FORMATS[format].suffixes[0]}").write_bytes(taken_over)
    gradviz("render", "t.py", "-o", f"x{FORMATS[format].suffixes[0]}", code=2)


@pytest.mark.skipif(os.name != "posix", reason="devices of POSIX")
def test_a_device_is_written_as_before(gradviz: Gradviz, folder: Path) -> None:
    gradviz("render", "t.py", "--format", "svg", "-o", os.devnull)
