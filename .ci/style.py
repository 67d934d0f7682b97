#!/usr/bin/env python3
"""Checks in seconds what concerns the repository and no user: imports, words, published files, and that pages agree with code.

    python .ci/style.py

Each problem is a line; exit code 1 where there is one. Needs an environment with gradviz and PyYAML, not torch.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "docs")]

import structure  # noqa: E402

from benchmarks import size  # noqa: E402
from tests.blocks import MADE, PAGES  # noqa: E402

PACKAGE = structure.PACKAGE
MODULES = structure.modules()
TREES = {name: structure.parsed(path) for name, path in MODULES.items()}
IMPORTS = structure.all_imports()
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

Problems = Iterator[str]


def text_of(name: str) -> str:
    """A file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


# -- the package -------------------------------------------------------------------------------------------------------


def imports_go_one_way() -> Problems:
    for importer, found in IMPORTS.items():
        for one in found:
            if one.module in MODULES and not structure.allowed(importer, one):
                yield f"{importer} imports {one.module}, which stands as high or higher"


def core_imports_no_feature() -> Problems:
    for importer, found in IMPORTS.items():
        if structure.part(importer) not in structure.CORE:
            continue
        for one in found:
            if structure.part(one.module) in structure.FEATURES:
                yield f"{importer} is of the core and imports the feature {one.module}"


def features_need_what_they_import() -> Problems:
    needs = runpy.run_path(str(PACKAGE / "features.py"))["NEEDS"]
    for feature in structure.FEATURES:
        found = {
            structure.part(one.module)
            for importer, every in IMPORTS.items()
            for one in every
            if structure.part(importer) == feature
        }
        for other in sorted(
            (found & set(structure.FEATURES) - {feature}) ^ set(needs.get(feature, ()))
        ):
            yield f"{feature} and {other}: gradviz/features.py says otherwise than the imports"


def rows_name_what_is_there() -> Problems:
    """A row names `module:attribute`; so do the doors of a Graph."""
    for name, path in MODULES.items():
        for module, attribute in re.findall(
            r'"(gradviz[\w.]*):(\w+)"', path.read_text(encoding="utf-8")
        ):
            if module not in TREES:
                yield f"{name} names {module}, which is not there"
            elif not _defines(TREES[module], attribute):
                yield f"{name} names {module}:{attribute}, which is not there"


def _defines(tree: ast.Module, name: str) -> bool:
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return True
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [getattr(node, "target", None)]
        )
        if any(
            isinstance(target, ast.Name) and target.id == name for target in targets
        ):
            return True
    return False


def torch_stays_with_live_objects() -> Problems:
    for importer, found in IMPORTS.items():
        if importer.startswith(structure.READS_LIVE_OBJECTS):
            continue
        if any(one.eager and one.module.split(".")[0] == "torch" for one in found):
            yield f"{importer} imports torch at once, and does not read live objects"


def every_folder_has_a_level() -> Problems:
    there = {structure.part(name) for name in MODULES} - {""}
    for name in sorted(there ^ set(structure.LEVELS)):
        yield f"{name} is not both in gradviz/ and in docs/structure.py"


def every_module_says_what_it_owns() -> Problems:
    yield from (
        f"{name} has no docstring"
        for name, tree in TREES.items()
        if not ast.get_docstring(tree)
    )


def a_class_name_means_one_thing() -> Problems:
    for name, places in size.ambiguous_names(TREES).items():
        yield f"class {name} is in {', '.join(places)}"


def functions_are_narrow() -> Problems:
    yield from (
        f"{place} has {count} branches"
        for place, count in size.wide_functions(TREES).items()
    )


# -- words -------------------------------------------------------------------------------------------------------------

WORST = {
    r"\bhand(s|ed)? over\b": "pass, add, keep",
    r"\btake[sn]? along\b": "reference, still has",
    r"\bhow many-th\b": "which, the Nth",
    r"\bMend\b": "Fix",
    r"\bis joined to\b": "reaches",
    r"\bthe chain broke\b": "its input still has a graph",
    r"\bwhat (it|they) holds? leads? to\b": "references",
    r"\bNothing, (if|unless)\b": "No change needed if",
    r"\bget(s|ting)? along\b": "works",
}
"""Forms that readers stumbled over, and what to write instead."""

UNCLEAR = {
    r"\bhas to pass\b": "needs a gradient",
    r"\bnumbers? of it\b": "values",
    r"\banew\b": "again",
    r"\bbehind (a|an|it|the|them)\b": "of, after, through",
    r"\blet go\b": "free",
    r"\blooked at\b": "read",
    r"\b(gradient|which|what) (that )?arrives?\b": "incoming gradient",
    r"\b(from|to|with|where) what\b": "say which thing",
    r"\bwhat (was|were|is wanted|is there|(it|they) (had|took|made|holds?|keeps?|gives?|needs?))\b": "say which thing",
    r"\bgoes? for nothing\b": "is covered",
    r"\bwould else\b": "would otherwise",
}
"""More of them, for pages written by hand and for help."""


def unclear(text: str, forms: dict[str, str]) -> Iterator[str]:
    """Each of these forms in a text, with the better one.

    >>> list(unclear("Mend it anew.", WORST | UNCLEAR))
    ["'Mend': write Fix", "'anew': write again"]
    """
    for form, better in forms.items():
        yield from (
            f"{match[0]!r}: write {better}" for match in re.finditer(form, text)
        )


def sentences(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are sentences: literals with spaces, docstrings among them."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and " " in node.value
        ):
            yield node.value


def sentences_of_the_product_are_plain() -> Problems:
    for name, tree in TREES.items():
        for text in sentences(tree):
            yield from (f"{name}: {one}" for one in unclear(text, WORST))


def pages_are_plain() -> Problems:
    for page in (
        path for path in PAGES if path.name not in ("CHANGELOG.md", "ARCHITECTURE.md")
    ):
        if page.parent.name == "benchmarks":
            continue
        prose = re.sub(
            r"^```.*?^```",
            "",
            page.read_text(encoding="utf-8"),
            flags=re.MULTILINE | re.DOTALL,
        )
        forms = WORST if page.name == "backward-names.md" else WORST | UNCLEAR
        yield from (f"{page.relative_to(ROOT)}: {one}" for one in unclear(prose, forms))
        for match in re.finditer(r"(^|\. )Of [a-z]", prose, re.MULTILINE):
            yield f"{page.relative_to(ROOT)}: a sentence begins with {match[0]!r}"


def readme_is_short() -> Problems:
    count = len(text_of("README.md").splitlines())
    if count > 90:
        yield f"README.md has {count} lines; 90 at most"


GALLERY_BYTES = 3_000_000


def gallery_is_whole() -> Problems:
    """Whether its page and its files are those of the list; `tests/test_gallery.py` draws some of them."""
    gallery = runpy.run_path(str(ROOT / "docs" / "make_gallery.py"))
    if gallery["PAGE"].read_text(encoding="utf-8") != gallery["document"]():
        yield "docs/gallery.md is not what its list says: run python docs/make_gallery.py"

    pictures = list(gallery["PICTURES"].iterdir())
    names = {f"{family.name}.svg" for family in gallery["FAMILIES"]}
    for name in sorted({picture.name for picture in pictures} ^ names):
        yield f"docs/gallery/{name} is not both drawn and in the list of docs/make_gallery.py"
    for family in gallery["FAMILIES"]:
        if not (ROOT / family.script).exists():
            yield f"the gallery names {family.script}, which is not there"

    size = sum(picture.stat().st_size for picture in pictures)
    if size > GALLERY_BYTES:
        yield f"docs/gallery has {size:,} bytes; {GALLERY_BYTES:,} at most"


# -- what is published -------------------------------------------------------------------------------------------------


def architecture_is_what_the_code_is() -> Problems:
    page = text_of("ARCHITECTURE.md")
    if (
        runpy.run_path(str(ROOT / "docs" / "make_architecture.py"))["filled"](page)
        != page
    ):
        yield "ARCHITECTURE.md is not what the code is: run python docs/make_architecture.py"
    for name in re.findall(r"`([\w]+/[\w/.]*)`", page):
        if not any((home / name).exists() for home in (ROOT, PACKAGE, PACKAGE.parent)):
            yield f"ARCHITECTURE.md names {name}, which is not there"
    if len(page.splitlines()) > 150:
        yield "ARCHITECTURE.md is longer than one page of 150 lines"


def versions_agree() -> Problems:
    if re.search(r'^version = "', PYPROJECT, re.MULTILINE):
        yield "pyproject.toml has a version; it stands in gradviz/__init__.py"
    citation = yaml.safe_load(text_of("CITATION.cff"))
    for key in {"cff-version", "message", "title", "authors"} - set(citation):
        yield f"CITATION.cff has no {key}"
    if (
        citation["license"] not in PYPROJECT
        or citation["abstract"].rstrip(".") not in PYPROJECT
    ):
        yield "CITATION.cff has another licence or abstract than pyproject.toml"


def site_leads_to_every_page() -> Problems:
    waiting: list[Any] = list(yaml.safe_load(text_of("mkdocs.yml"))["nav"])
    found = []
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, str):
            found.append(item)
        else:
            waiting[:0] = item.values() if isinstance(item, dict) else item
    pages = {path.relative_to(ROOT).as_posix() for path in PAGES} | set(MADE)
    made_by_the_site = ("reference/", "commands/")
    listed = {name for name in found if name.endswith(".md")}
    ours = {name for name in listed if not name.startswith(made_by_the_site)}
    for name in sorted(ours ^ pages):
        yield f"{name} is not both a page and in the navigation of mkdocs.yml"


def changelog_keeps_its_form() -> Problems:
    text = text_of("CHANGELOG.md")
    for kind in re.findall(r"^### (.*)$", text, re.MULTILINE):
        if kind not in (
            "Added",
            "Changed",
            "Deprecated",
            "Removed",
            "Fixed",
            "Security",
        ):
            yield f"CHANGELOG.md has a heading {kind!r}, which Keep a Changelog does not know"
    for release in text.split("\n## ")[1:]:
        heading, *sections = release.split("\n### ")
        if re.search("^- ", heading, re.MULTILINE):
            yield "CHANGELOG.md has a line above the first heading of a release"
        names = [section.partition("\n")[0] for section in sections]
        yield from (
            f"CHANGELOG.md has two headings {name!r}"
            for name in set(names)
            if names.count(name) > 1
        )


# -- what runs elsewhere -----------------------------------------------------------------------------------------------


def hosted_runs_are_those_of_the_matrix() -> Problems:
    cases = [
        tuple(case.split(":"))
        for case in runpy.run_path(str(ROOT / ".ci" / "matrix"))["CASES"]
    ]
    jobs = yaml.safe_load(text_of(".github/workflows/ci.yml"))["jobs"]
    listed = [
        (case["python"], case["torch"])
        for case in jobs["versions"]["strategy"]["matrix"]["include"]
    ]
    if listed != cases:
        yield "ci.yml lists other versions than .ci/matrix"

    lowest = re.findall(r'requires-python = ">=([\d.]+)"|"torch>=([\d.]+)', PYPROJECT)
    python, torch = lowest[0][0], lowest[1][1]
    if python not in [case[0] for case in cases] or not any(
        case[1].startswith(torch) for case in cases
    ):
        yield f"the matrix lacks Python {python} or torch {torch}, which pyproject.toml promises"
    (pinned,) = re.findall(r"^torch==(.+)$", text_of("constraints.txt"), re.MULTILINE)
    if pinned not in [case[1] for case in cases]:
        yield f"the matrix lacks torch {pinned} of constraints.txt"


def folders_of_the_matrix_are_there() -> Problems:
    matrix = runpy.run_path(str(ROOT / ".ci" / "matrix"))
    named = [*(f"tests/{folder}" for folder in matrix["CAPTURE"]), *matrix["LONG"]]
    for name in (*named, matrix["SAMPLE"], matrix["SOAK"], matrix["HOSTS"]):
        if not (ROOT / name).exists():
            yield f".ci/matrix names {name}, which is not there"


RULES: tuple[Callable[[], Iterable[str]], ...] = (
    imports_go_one_way,
    core_imports_no_feature,
    features_need_what_they_import,
    rows_name_what_is_there,
    torch_stays_with_live_objects,
    every_folder_has_a_level,
    every_module_says_what_it_owns,
    a_class_name_means_one_thing,
    functions_are_narrow,
    sentences_of_the_product_are_plain,
    pages_are_plain,
    readme_is_short,
    gallery_is_whole,
    architecture_is_what_the_code_is,
    versions_agree,
    site_leads_to_every_page,
    changelog_keeps_its_form,
    hosted_runs_are_those_of_the_matrix,
    folders_of_the_matrix_are_there,
)


def main() -> int:
    problems = [f"{rule.__name__}: {problem}" for rule in RULES for problem in rule()]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"style: {len(RULES)} rules, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
