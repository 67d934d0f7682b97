"""What `gradviz COMMAND --help` shows: three examples, then the options in groups.

Both are tables here, because a reader compares commands, and a command only declares
its options.
"""

from __future__ import annotations

from typing import NamedTuple

import click

from gradviz.features import is_there

GROUPS: dict[str, tuple[str, ...]] = {
    "Most used": (
        "--input",
        "--output",
        "--html",
        "--open",
        "--direction",
        "--depth",
        "--focus",
        "--values",
        "--to",
        "--by",
        "--top",
        "--budget",
    ),
    "What is shown": (
        "--check",
        "--cut",
        "--saved",
        "--leaves",
        "--views",
        "--expand",
        "--details",
        "--names",
        "--color",
        "--theme",
        "--title",
        "--bare",
        "--scale",
        "--links",
        "--columns",
        "--max-rows",
        "--limit",
    ),
    "Which checks": ("--only", "--ignore", "--baseline", "--list", "--explain"),
    "Output": ("--format", "--force", "--json", "--sarif", "--verbose", "--fail-on"),
    "Running the script": (
        "--module",
        "--at",
        "--steps",
        "--continue",
        "--run-custom",
        "--rank",
    ),
    "Help": ("--version", "--help"),
}
"""Titles, each with its options in the order that help shows them."""


class Example(NamedTuple):
    """A command line without `gradviz`, and what it does."""

    line: str
    effect: str
    needs: str = "gradviz.cli"  # the feature without which it does not work


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "render": (
        Example("render train.py", "a picture, train.svg"),
        Example(
            "render train.py -o net.html --open",
            "a page in which modules open",
            "gradviz.page",
        ),
        Example("render train.py --focus model.blocks.0", "one module, opened"),
    ),
    "tree": (
        Example("tree train.py", "modules: parameters, shapes, bytes"),
        Example("tree train.py --by node", "single ops, and what each was given"),
        Example("tree train.py --depth 2", "two levels of modules"),
    ),
    "summary": (
        Example("summary model.py:Net --input 1,3,224,224", "a model, run once"),
        Example("summary train.py", "what the first backward() has"),
        Example("summary train.py --columns output,FLOPs", "only these"),
    ),
    "saved": (
        Example("saved train.py", "the lines that hold most memory"),
        Example("saved train.py --by module", "the modules that do"),
        Example("saved train.py --budget 40GiB", "what to checkpoint"),
    ),
    "tensors": (
        Example("tensors train.py", "after the first optimizer step"),
        Example("tensors train.py --at 1", "at the first backward call"),
        Example("tensors train.py:model", "the tensors of one variable"),
    ),
    "why": (
        Example("why train.py w", "why w gets a gradient, or none"),
        Example("why train.py model.fc.weight", "the same of a parameter"),
        Example("why train.py w --at 3", "at the third backward call"),
    ),
    "flow": (
        Example("flow train.py", "gradient norms by module"),
        Example("flow train.py --by leaf", "by parameter and input"),
        Example("flow train.py --by leaf --json", "every leaf, for a program"),
    ),
    "paths": (
        Example("paths train.py --to w", "every path from the loss to w"),
        Example("paths train.py --to w --top 3", "the three largest"),
        Example("paths train.py:y --to w", "from y instead of the loss"),
    ),
    "diff": (
        Example("diff before.py after.py", "two scripts"),
        Example("diff train.py --at 1 --at 2", "two backward calls of one run"),
        Example("diff a.json b.json -o diff.html", "two saved graphs, drawn"),
    ),
    "merge": (
        Example("merge net.rank*.json", "what differs between the ranks"),
        Example("merge net.rank*.json -o net.svg", "all ranks as one picture"),
        Example("merge net.rank*.json -o all.json", "one graph, for gradviz render"),
    ),
    "check": (
        Example("check train.py", "what is wrong, and how to fix it"),
        Example("check train.py --html report.html", "with the graph", "gradviz.page"),
        Example("check train.py --fail-on error", "exit 1 for errors only"),
    ),
    "formula": (
        Example("formula softmax", "an op"),
        Example("formula SoftmaxBackward0", "a backward function"),
        Example("formula F.linear", "a function of torch"),
    ),
    "demo": (
        Example("demo", "write the script and its page"),
        Example("demo --open", "open the page, too"),
        Example("check gradviz_demo.py", "its two faults, in the terminal"),
    ),
}
"""Three of each command, the first of which is the one to start with."""

_COLUMN = 46  # where the effects of examples begin, at most


class GroupedCommand(click.Command):
    """A command whose help begins with examples and has its options in groups."""

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        examples = [
            (f"gradviz {example.line}", example.effect)
            for example in EXAMPLES.get(self.name or "", ())
            if is_there(example.needs)
        ]
        if examples:
            with formatter.section("Examples"):
                formatter.write_dl(examples, col_max=_COLUMN)

        records = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and record is not None:
                records[max(parameter.opts, key=len)] = record

        for title, flags in (*GROUPS.items(), ("Other", tuple(records))):
            rows = [records.pop(flag) for flag in flags if flag in records]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
