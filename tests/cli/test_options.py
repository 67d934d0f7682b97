"""Options of the command line are made from the fields of `Options`, and from nothing else."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click
import pytest

import gradviz
from gradviz.cli.help import EXAMPLES, GROUPS, GroupedCommand
from gradviz.cli.main import COMMANDS, cli
from gradviz.cli.options import render_options
from gradviz.draw.options import Options, option_fields
from gradviz.draw.output import FORMATS
from gradviz.gradients.command import paths_command
from gradviz.gradients.paths import LIMIT
from tests.blocks import ROOT
from tests.command_line import CliRunner


def invoke(*arguments: str) -> tuple[dict[str, Any], str]:
    seen: dict[str, Any] = {}

    @click.command()
    @render_options(*(item.name for item in option_fields()))
    def command(**options: Any) -> None:
        seen.update(options)

    result = CliRunner().invoke(command, list(arguments))
    return seen, result.output


def test_the_defaults_are_the_fields_defaults() -> None:
    seen, _ = invoke()
    assert seen == {item.name: item.default for item in option_fields()}
    assert Options.of(seen) == Options()


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (("--max-rows", "7"), "max_rows", 7),
        (("--leaves", "hidden"), "leaves", "hidden"),
        (("--saved",), "saved", True),
        (("--depth", "all"), "depth", "all"),
        (("--focus", "layers.0"), "focus", "layers.0"),
        (("--expand", "a", "--expand", "b.0"), "expand", ("a", "b.0")),
    ],
)
def test_values(arguments: tuple[str, ...], name: str, value: object) -> None:
    seen, _ = invoke(*arguments)
    assert seen[name] == value
    assert type(seen[name]) is type(value)


@pytest.mark.parametrize("value", ["-1", "many", "1.5", ""])
def test_a_wrong_number_is_refused_with_the_fields_own_words(value: str) -> None:
    seen, said = invoke("--max-rows", value)
    assert seen == {}
    assert "Give a whole number; 0 means no limit." in said


@pytest.mark.parametrize("value", ["0", "deep", "1.5"])
def test_a_field_of_numbers_and_words_lists_both(value: str) -> None:
    seen, said = invoke("--depth", value)
    assert seen == {}
    assert "a whole number from 1, 'auto' or 'all'" in said


def test_what_the_command_line_takes_by_default_python_does_too() -> None:
    """Commands cannot ask what imports torch, as help must not."""
    of_paths = {option.name: option.default for option in paths_command.params}
    assert of_paths["limit"] == LIMIT == inspect.signature(gradviz.paths).parameters["limit"].default


def test_no_two_options_of_a_command_are_one_parameter() -> None:
    """Before click 8.2.1 the default of the later one took the place of the other's value."""
    from gradviz.cli.main import cli

    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parameters = [parameter.name for parameter in command.params]
        assert len(parameters) == len(set(parameters)), name


def test_the_page_of_exports_names_the_commands_with_json() -> None:
    page = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"^\| JSON \| `--json` of (.*?) \|", page, re.MULTILINE)
    commands = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    have = {name for name, one in commands.items() if one and any("--json" in option.opts for option in one.params)}
    assert set(re.findall(r"`(\w+)`", row)) == have


def test_there_are_few_options() -> None:
    """A shared one counts in each command; --help apart. There were 178."""
    count = 0
    for command in (cli, *(cli.get_command(click.Context(cli), name) for name in COMMANDS)):
        assert command is not None
        parameters = command.get_params(click.Context(command))
        options = [one for one in parameters if isinstance(one, click.Option) and not one.hidden]
        count += sum("--help" not in option.opts for option in options)
    assert 50 < count <= 112, "a new option needs a reason, and an old one that goes for it"


def test_every_option_is_in_a_group_of_help() -> None:
    groups = [flag for flags in GROUPS.values() for flag in flags]
    assert len(groups) == len({*groups})
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert isinstance(command, GroupedCommand)
        context = click.Context(command)
        options = [option for option in command.get_params(context) if isinstance(option, click.Option)]
        assert {max(option.opts, key=len) for option in options} <= {*groups}, name
        for option in options:
            shown = f"  {option.opts[0]}" in command.get_help(context)
            assert shown is not option.hidden, option


def test_an_option_in_no_group_is_shown_all_the_same() -> None:
    @click.command("leaves", cls=GroupedCommand)
    @click.option("--largest", is_flag=True)
    @click.argument("target")
    def command() -> None: ...

    said = CliRunner().invoke(command, ["--help"]).output
    assert "Other:\n  --largest" in said and "\n  TARGET" not in said


@pytest.mark.parametrize("line", [example.line for examples in EXAMPLES.values() for example in examples])
def test_the_examples_of_help_are_understood(line: str) -> None:
    name, *words = line.split()
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    context = command.make_context(name, [word for word in words if word != "--open"])
    assert f"gradviz {line}" in command.get_help(context) or name == "check"


def test_every_command_has_three_examples() -> None:
    assert {name: len(EXAMPLES.get(name, ())) for name in COMMANDS} == dict.fromkeys(COMMANDS, 3)


def test_help_fits_a_terminal() -> None:
    for command in COMMANDS:
        said = CliRunner().invoke(cli, [command, "--help"], terminal_width=80).output
        assert all(len(line) <= 80 for line in said.splitlines()), command


def test_the_pages_name_every_option_and_format() -> None:
    commands = (ROOT / "docs/cli.md").read_text(encoding="utf-8")
    command = cli.get_command(click.Context(cli), "render")
    assert command is not None
    options = [option.opts for option in command.params if isinstance(option, click.Option)]
    assert [names for names in options if not any(f"`{name}" in commands for name in names)] == []

    files = (ROOT / "docs/exports.md").read_text(encoding="utf-8")
    assert [row.name for row in FORMATS.values() if f"`{row.suffixes[0]}`" not in files] == []
