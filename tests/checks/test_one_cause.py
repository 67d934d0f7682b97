"""One finding for one cause: what follows is told with it; and the line that it is about, with the part that matters."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from rich.cells import cell_len
from torch import nn

import gradviz
from gradviz.checks.causes import joined
from gradviz.checks.excerpt import Excerpt, code_lines, excerpt
from gradviz.checks.finding import Finding, Findings, Severity
from gradviz.checks.output import report
from gradviz.checks.telling.mending import mend
from gradviz.cli.main import cli
from gradviz.graph import SourceLine
from gradviz.source.cut import Cut
from tests.checks.advice import alarms, skip_unread
from tests.checks.test_scripts import check, written
from tests.command_line import CliRunner
from tests.walker.graphs import needs_raw


def finding(
    id: str, severity: Severity = "warning", names: tuple[str, ...] = ("w",), **explained: tuple[str, ...]
) -> Finding:
    return Finding(id, severity, id, names, "", "because", "mend it", **explained)


def told(*found: Finding) -> list[tuple[str, str, list[str]]]:
    return [(one.id, one.severity, [each.id for each in one.consequences]) for one in joined(found)]


def test_what_follows_from_a_finding_is_told_with_it_and_makes_it_as_bad() -> None:
    cause, effect = finding("a"), finding("b", "error", ("other",), follows=("a",))
    assert told(effect, cause) == [("a", "error", ["b"])]
    assert told(effect) == [("b", "error", [])]
    assert told(cause, effect, finding("c", follows=("b",))) == [("a", "error", ["b", "c"])]


@pytest.mark.parametrize(
    ("cause", "effect", "left"), [(("u", "v", "w"), ("w", "v"), 1), (("w",), ("w", "v"), 2), (("w",), (), 2)]
)
def test_the_same_names_or_more_make_a_cause(cause: tuple[str, ...], effect: tuple[str, ...], left: int) -> None:
    both = finding("a", names=cause), finding("b", names=effect, repeats=("a",))
    assert len(joined(both)) == left


def test_findings_that_explain_each_other_stay() -> None:
    assert len(told(finding("a", follows=("b",)), finding("b", follows=("a",)))) == 2


UNUSED = """
import torch
net = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 1), "b": torch.nn.Linear(2, 1)})
loss = net["a"](torch.ones(1, 2)).sum()
loss.backward()
"""


@needs_raw
def test_tensors_that_one_line_changed_are_one_finding(tmp_path: Path) -> None:
    script = """
    import torch
    net = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(4)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    first, second = net(torch.ones(1, 2)).sum(), net(torch.ones(1, 2)).sum()
    first.backward()
    optimizer.step()
    second.backward()
    """
    (found,), _ = check(written(tmp_path, script))
    assert found["id"] == "stale-saved" and len(found["names"]) == 3
    assert found["line"] == 7 and found["code"] == "optimizer.step()"
    assert [one["id"] for one in found["consequences"]] == ["raised"]


def test_a_report_is_80_columns_wide_and_lists_three_names() -> None:
    net = nn.ModuleList([nn.Linear(2, 2) for _ in range(9)])
    found = gradviz.check(net[0](torch.ones(1, 2)).sum(), nn.ModuleDict({"a_model_with_a_long_name": net}))
    lines = [line for line, _ in report(found)]
    assert max(map(len, lines)) <= 80
    assert any("and 13 more" in line or "+13 more" in line for line in lines)
    assert sum("weight" in line for line in [line for line, _ in report(found, verbose=True)]) > 3


def test_the_first_finding_has_20_lines_and_each_further_one_six() -> None:
    long = Finding("a", "warning", "it is wrong", tuple("names"), "a.py:1", "because " * 200, "mend " * 40, call=2)
    found = Findings((long, replace(long, id="b"), replace(long, id="c")), ("a",))
    parts = "\n".join(line for line, _ in report(found)).split("\n\n")
    assert [len(part.splitlines()) for part in parts[:3]] == [20, 6, 6]
    assert all("why:" in part and "fix:" in part for part in parts[:3])
    assert "Shortened: --verbose shows all." in parts[3]
    whole = "\n".join(line for line, _ in report(found, verbose=True))
    assert whole.count("why:") == 3 and "Shortened" not in whole


def test_ids_of_checks_are_listed_when_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, "import torch\ntorch.ones(1, requires_grad=True).exp().backward()\n")
    plain, verbose = (CliRunner().invoke(cli, ["check", str(path), *more]).stdout for more in ([], ["--verbose"]))
    assert "stale-saved" not in plain and "Nothing found." in plain
    assert "stale-saved" in verbose


# -- the line of code --------------------------------------------------------------------------------------------------

LINE = "    loss = torch.log(x).sum() + y.log2()  # log"


@pytest.mark.parametrize(
    ("text", "part", "found"),
    [
        (LINE, "", "loss = torch.log(x).sum() + y.log2()"),
        (LINE, "torch.exp(x)", "loss = torch.log(x).sum() + y.log2()"),
        (LINE, "y . log2( )", "y.log2()"),
        (LINE, "y", "y"),
        ('exp = f( x, "a" ) + x', "f(x, 'a')", 'f( x, "a" )'),
        ("exp = f(y) + x", "x", "x"),
        ("x[:, 1] = f(x)", "x[:, 1]", "x[:, 1]"),
        ("größe = größe.detach() * 2", "größe.detach()", "größe.detach()"),
        ("elif torch.exp(x) > 1:", "torch.exp(x)", "torch.exp(x)"),
        ("no statement here", "", "no statement here"),
    ],
)
def test_the_part_of_a_line_that_matters(text: str, part: str, found: str) -> None:
    shown = excerpt(SourceLine("none.py", 3, "", text), part)
    assert shown is not None and shown.part == found


def test_a_file_that_changed_since_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("    y = 2\n")
    shown = excerpt(SourceLine(str(path), 1, "", "x = 1"))
    assert shown is not None and shown.text == "x = 1"


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_long_line_is_cut_around_what_matters(width: int) -> None:
    text = f"{'a' * 60} = {'b' * 60}.detach() + {'c' * 60}"
    start = text.index(".detach()") + 1
    line, carets = code_lines(Excerpt("a.py", 7, text, start, start + 9), width)
    assert len(line) <= width and line[carets.index("^") : carets.rindex("^") + 1] == ".detach()"


def test_hidden_and_wide_characters_keep_the_carets_in_place() -> None:
    text = "\tx = '漢\u202e' + y.detach()"
    at = text.index("y.detach()") + 1
    line, carets = code_lines(Excerpt("a.py", 7, text, at, at + 10), 80)
    assert "\\u202e" in line and carets.index("^") == line.index("y.detach()") + 1  # the ideograph takes two columns


def test_notes_below_an_alarm_are_told_when_asked_for(tmp_path: Path) -> None:
    frozen = UNUSED.replace("loss =", 'net["a"].bias.requires_grad_(False)\nloss =')
    path = written(tmp_path, frozen)
    plain, verbose = (CliRunner().invoke(cli, ["check", str(path), *more]).stdout for more in ([], ["--verbose"]))
    assert "note:" not in plain and "1 note" in plain and "--verbose shows all" in plain
    assert "2. note:" in verbose and "requires_grad is False" in verbose


def test_consequences_of_one_check_are_one_line() -> None:
    effects = tuple(finding("b", names=(name,)) for name in "xyz")
    found = Findings((replace(finding("a"), consequences=effects),), ("a", "b"))
    lines = [line.strip() for line, _ in report(found) if "[b]" in line]
    assert lines == ["effect: b, +2 more  [b]"]


@given(
    text=st.text(st.sampled_from("ab .()=漢\u202e\t#'é"), max_size=90),
    part=st.sampled_from(["", ".b()", "漢", "a"]),
    width=st.integers(24, 90),
)
def test_any_line_has_columns_inside_it_and_fits_the_width(text: str, part: str, width: int) -> None:
    shown = excerpt(SourceLine("none.py", 3, "", text), part)
    if shown is None:
        return
    assert 1 <= shown.column < shown.end_column <= len(shown.text) + 1
    line, *carets = code_lines(shown, width)
    assert cell_len(line) <= width and all(cell_len(each) <= width and "^" in each for each in carets)


def test_one_decorator_gives_one_warning(tmp_path: Path) -> None:
    script = """
    import torch
    from torch import nn


    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        @torch.no_grad()
        def encode(self, x):
            a = torch.relu(self.left(x))
            b = torch.relu(self.right(x))
            return a, b

        def forward(self, x):
            a, b = self.encode(x)
            return self.head(a) + self.head(b)


    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        net(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    """
    (found,) = alarms(textwrap.dedent(script), tmp_path)
    assert found["names"] == ["net.left.weight", "net.left.bias", "net.right.weight", "net.right.bias"]
    assert "remove @torch.no_grad()" in found["fix"]
    assert not alarms(textwrap.dedent(script).replace("@torch.no_grad()", ""), tmp_path)


def test_a_target_network_inside_of_the_model_is_no_fault(tmp_path: Path) -> None:
    script = """
    import copy, torch
    from torch import nn


    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(4, 1)
            self.slow = copy.deepcopy(self.q)

        @torch.no_grad()
        def bootstrap(self, x):
            return self.slow(x)

        def forward(self, x):
            return self.q(x)


    critic = Critic()
    optimizer = torch.optim.SGD(critic.q.parameters(), lr=0.01)
    for _ in range(3):
        x = torch.randn(8, 4)
        optimizer.zero_grad()
        (critic(x) - 0.9 * critic.bootstrap(x) - 1).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(critic.slow.parameters(), critic.q.parameters()):
                slow.lerp_(fast, 0.05)
    """
    assert not alarms(textwrap.dedent(script), tmp_path)
    # the loop updates it, whoever holds it; without that, nothing does
    held = textwrap.dedent(script).replace("critic.q.parameters(), lr", "critic.parameters(), lr")
    assert not alarms(held, tmp_path)
    assert alarms(held.replace("slow.lerp_(fast, 0.05)", "pass"), tmp_path)


def test_numbers_that_become_a_tensor_again_are_stacked() -> None:
    source = SourceLine("a.py", 1, "f", "turn = torch.tensor([[c.item(), -s.item()], [s.item(), c.item()]])")
    assert "torch.stack" in mend(Cut("number", source))


def test_a_state_in_a_module_is_detached_where_it_is_read(tmp_path: Path) -> None:
    skip_unread("freed-graph")
    script = """
    import torch
    from torch import nn


    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell, self.state = nn.LSTM(3, 4), None

        def forward(self, x):
            if self.state is not None:
                h, c = self.state
                y, self.state = self.cell(x, (h, c))
            else:
                y, self.state = self.cell(x)
            return y


    class Trainer:
        def __init__(self):
            self.net = Memory()
            self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

        def run(self):
            for _ in range(3):
                self.opt.zero_grad()
                loss = self.net(torch.randn(5, 2, 3)).square().mean()
                loss.backward()
                self.opt.step()


    Trainer().run()
    """
    (found,) = alarms(textwrap.dedent(script), tmp_path)
    assert found["id"] == "freed-graph" and "self.state" in found["code"] and ".detach()" in found["fix"]
    healed = script.replace("h, c = self.state", "h, c = (one.detach() for one in self.state)")
    assert not alarms(textwrap.dedent(healed), tmp_path)


def test_a_sampler_that_asks_for_the_gradient_of_its_input_fills_no_parameter(tmp_path: Path) -> None:
    script = """
    import torch

    net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    opt = torch.optim.Adam(net.parameters(), lr=0.01)


    def sample(x):
        for _ in range(3):
            x = x.detach().requires_grad_(True)
            (slope,) = torch.autograd.grad(net(x).sum(), x)
            x = x.detach() - 0.1 * slope
        return x.detach()


    def step():
        opt.zero_grad()
        real, made = net(torch.randn(8, 2)), net(sample(torch.randn(8, 2)))
        ((real - made).mean() + real.square().mean()).backward()
        opt.step()


    for _ in range(5):
        step()
    """
    assert not alarms(textwrap.dedent(script), tmp_path)


def test_what_is_to_be_frozen_is_called_as_on_its_line(tmp_path: Path) -> None:
    script = """
    import torch
    from torch import nn

    encoder = nn.Linear(4, 4)
    encoder.requires_grad = False
    whole = nn.Sequential(encoder, nn.Linear(4, 1))
    optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        whole(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    """
    (found,) = alarms(textwrap.dedent(script), tmp_path)
    assert found["id"] == "not-frozen" and "module.requires_grad_(False)" in found["fix"]
    healed = script.replace("encoder.requires_grad = False", "encoder.requires_grad_(False)")
    assert not alarms(textwrap.dedent(healed), tmp_path)


TARGETS = """
import copy, torch
first, second = torch.nn.Linear(3, 1), torch.nn.Linear(3, 1)
one, other = (copy.deepcopy(net).requires_grad_(False) for net in (first, second))
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.01)
for step in range(4):
    x, net = torch.randn(8, 3), (first, second)[step % 2]
    with torch.no_grad():
        goal = torch.min(one(x), other(x))
    optimizer.zero_grad()
    (net(x) - goal).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_one_note_for_all_that_is_frozen_and_none_for_what_takes_turns(tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, TARGETS))
    assert [one["summary"] for one in found] == ["4 parameters of one (Linear) and other (Linear) are frozen"]


def test_an_update_of_a_dict_that_is_recorded_is_one_finding_of_a_target(tmp_path: Path) -> None:
    """The losses of all steps hang on it: what they keep goes with it."""
    script = """
    import torch
    params, x = {"w": torch.randn(3, 1, requires_grad=True)}, torch.randn(8, 3)
    for step in range(5):
        loss = (x @ params["w"]).square().mean()
        (g,) = torch.autograd.grad(loss, params["w"])
        params["w"] = params["w"] - 0.1 * g
    """
    path = written(tmp_path, script)
    found, code = check(Path(f"{path}:loss"))
    assert code == 1 and [one["id"] for one in found] == ["nonleaf-parameter"]
    assert "with torch.no_grad(): params['w'] -= lr * gradient" in found[0]["fix"]


def test_what_two_backward_calls_of_a_step_go_through_is_computed_again(tmp_path: Path) -> None:
    """Between the two the weights are changed, as sharpness-aware minimization does: the second loss is one of these."""
    script = """
    import torch
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        output = model(torch.ones(4, 3))
        output.square().mean().backward()
        with torch.no_grad():
            for p in model.parameters():
                p += 0.05 * p.grad
        (output - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    found, _ = check(written(tmp_path, script))
    assert found[0]["id"] == "freed-graph" and "Compute output again directly before" in found[0]["fix"]
    assert "sum" not in found[0]["fix"]


def test_a_loss_that_is_told_to_require_grad_hides_that_all_is_frozen(tmp_path: Path) -> None:
    script = """
    import torch
    model = torch.nn.Linear(3, 1)
    for p in model.parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        loss = model(torch.ones(4, 3)).square().mean()
        loss.requires_grad = True
        loss.backward()
        optimizer.step()
    """
    found, _ = check(written(tmp_path, script))
    assert found[0]["id"] == "no-graph" and found[0]["where"].endswith(":5")
    assert "all 2 parameters of the model are frozen" in found[0]["why"] and "do not freeze" in found[0]["fix"]
