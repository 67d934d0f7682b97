"""Loops, statements and calls as the program wrote them, against what the interpreter did."""

from __future__ import annotations

import doctest
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import gradviz
from gradviz.graph import Construct, Graph
from gradviz.graph.origins import around
from gradviz.graph.written import code_of
from gradviz.run.reading import read_graph
from gradviz.run.run import Run
from gradviz.run.target import parse_target
from gradviz.walker.private import peek_sequence
from tests.blocks import ROOT
from tests.walker.graphs import needs_columns

W = torch.arange(16.0).reshape(4, 4).div(16).requires_grad_()
X = torch.ones(3, 4)


def recorded(case: Callable[[], Tensor]) -> Graph:
    with gradviz.record() as recording:
        loss = case()
    return recording.graph(loss.sum())


def loops(graph: Graph) -> list[tuple[str, int]]:
    return [(construct.text, construct.turn) for construct in graph.program if construct.kind == "loop"]


def of_kind(graph: Graph, kind: str) -> list[Construct]:
    return [construct for construct in graph.program if construct.kind == kind]


# -- loops ---------------------------------------------------------------------------------------------------------------


def counted() -> Tensor:
    h = X
    for _ in range(6):
        h = torch.sin(h @ W)
    return h


def one_op_a_turn() -> Tensor:
    h = X @ W
    for _ in range(5):
        h = torch.tanh(h)
    return h


def after_continue() -> Tensor:
    h = X @ W
    for i in range(5):
        h = h.sin()
        if i % 2:
            continue
        h = h * 2
    return h


def other_arm() -> Tensor:
    h = X @ W
    for i in range(4):
        if i % 2:
            h = h.exp()
        else:
            h = h.cos()
    return h


def one_arm_of_a_choice() -> Tensor:
    h = X @ W
    for i in range(4):
        h = h.exp() if i > 1 else h
    return h


def a_choice_after_continue() -> Tensor:
    h = X @ W
    for i in range(5):
        if i == 2:
            continue
        if i % 2:
            h = h.exp()
        else:
            h = h.cos()
    return h


def arms_of_an_expression() -> Tensor:
    h = X @ W
    for i, scale in enumerate((1, 2, 3)):
        h = torch.tanh(h * scale) if i < 2 else torch.cos(h * scale)
    return h


def under_an_if() -> Tensor:
    h = X @ W
    for i in range(9):
        if i % 3 == 0:
            h = h.sin().cos()
    return h


def under_a_try() -> Tensor:
    h = X @ W
    for i in range(4):
        try:
            h = h.sin()
            if i == 2:
                raise ValueError
            h = h.cos()
        except ValueError:
            h = h.exp()
    return h


def after_a_conditional_break() -> Tensor:
    h = X @ W
    while True:
        h = h * 0.5
        if h.norm() < 1:
            break
        h = h.sin()
    return h


def nested() -> Tensor:
    h = X @ W
    for _ in range(2):
        h = h + W.sum()
        for _ in range(3):
            h = h * W.mean()
    return h


def nested_without_a_border() -> Tensor:
    h = X @ W
    for i in range(3):
        for j in range(2):
            h = h + W[i, j]
    return h


def of_two_loops_without_a_border() -> Tensor:
    h = X @ W
    for i in range(3):
        for _ in range(2):
            h = h.sin()
        for _ in range(i):
            h = h.cos()
    return h


def comprehension() -> Tensor:
    return torch.stack([torch.sigmoid(X @ W * k) for k in range(1, 4)]).sum(0)


def two_calls_of_torch() -> Tensor:
    target = torch.tensor([0, 1, 2])
    return sum(F.cross_entropy(X @ W, target) for _ in range(3))  # type: ignore[return-value]


def one_call_of_two_ops() -> Tensor:
    outputs, target = [X @ W, X @ W * 2], torch.tensor([0, 1, 2])
    return torch.stack([F.cross_entropy(output, target) for output in outputs])


def of_a_generator() -> Tensor:
    def values(h: Tensor) -> Iterator[Tensor]:
        for _ in range(4):
            h = torch.tanh(h @ W)
            yield h

    total = torch.zeros(3, 4)
    for value in values(X):
        total = total + value.exp()
    return total


def of_a_generator_in_an_expression() -> Tensor:
    def values(h: Tensor) -> Iterator[Tensor]:
        for _ in range(3):
            h = torch.tanh(h @ W) * 2
            yield h

    pairs = zip(values(X), (X, X + 1, X + 2))
    return sum((value - x).exp() for value, x in pairs)  # type: ignore[return-value]


def by_map_in_each_turn() -> Tensor:
    fast = [X @ W, X @ W, X @ W]
    for _ in range(2):
        fast = [h * 2 for h in fast]
        fast = list(map(lambda h: h - h.sin(), fast))  # noqa: C417
        fast[0], fast[1] = map(lambda h: h + h.cos(), fast[:2])  # noqa: C417
    return fast[0] + fast[1] + fast[2]


def of_subscripts() -> Tensor:
    rows = X @ W
    total = torch.zeros(4)
    for i in range(3):
        total = total + rows[i]
    return total


def of_columns() -> Tensor:
    h = X @ W
    parts = [h[:, a:b] for a, b in ((0, 1), (1, 3), (3, 4))]
    rows = [h[..., : i + 1] for i in range(4)]  # the last one takes all
    return torch.cat(parts + rows, 1)


def of_blocks() -> Tensor:
    h = X @ W
    return torch.cat([h[i:, i] for i in range(3)])


def in_place() -> Tensor:
    h = (X @ W).clone()
    for _ in range(3):
        h.mul_(0.5)
    return h


def filled() -> Tensor:
    out = torch.zeros(3, 4)
    for i in range(3):
        out[i] = W[i] * 2
    return out


def added_to_rows() -> Tensor:
    out = torch.zeros(3, 4)
    for i in range(4):
        row = torch.tensor([i % 3])
        out[row] += X[row] @ W
    return out


def changed_in_parts() -> Tensor:
    out = X @ W
    for i in range(3):
        at = torch.tensor(i)
        out[i] *= 2
        out[at] -= W[i]
    return out


def over_a_tensor() -> Tensor:
    total = torch.zeros(4)
    for row in X @ W:
        total = total + row * 3
    return total


def backward_through_earlier_steps() -> Tensor:
    h = X @ W
    for _ in range(2):
        for k in (1, 2, 3):
            h = h * W.mean() * k
        torch.autograd.grad(h.sum(), W, retain_graph=True)
    return h


def gradients_in_a_graph() -> Tensor:
    w = W * 1
    for _ in range(3):
        (slope,) = torch.autograd.grad((w * w).sum(), w, create_graph=True)
        w = w - 0.1 * slope
    return w


def backward_now_and_then() -> Tensor:
    total = torch.zeros(())
    for i in range(2):
        for x in (X, X * 2):
            total = total + (x @ W).sin().sum()
        if i:
            total.backward(retain_graph=True)
    return total


COUNTS: dict[Callable[[], Tensor], list[tuple[str, int]]] = {
    counted: [("for _ in range(6)", 6)],
    one_op_a_turn: [("for _ in range(5)", 5)],
    after_continue: [("for i in range(5)", 5)],
    other_arm: [("for i in range(4)", 4)],
    one_arm_of_a_choice: [("for i in range(4)", 0)],
    a_choice_after_continue: [("for i in range(5)", 0)],
    arms_of_an_expression: [("for i, scale in enumerate((1, 2, 3))", 3)],
    under_an_if: [("for i in range(9)", 0)],
    under_a_try: [("for i in range(4)", 0)],
    after_a_conditional_break: [("while True", 3)],
    nested: [("for _ in range(2)", 2), ("for _ in range(3)", 3), ("for _ in range(3)", 3)],
    nested_without_a_border: [("for i in range(3), j in range(2)", 6)],
    of_two_loops_without_a_border: [("for i in range(3)", 0)],
    comprehension: [("for k in range(1, 4)", 3)],
    two_calls_of_torch: [("for _ in range(3)", 3)],
    one_call_of_two_ops: [("for output in outputs", 0)],
    by_map_in_each_turn: [("for _ in range(2)", 2), ("for h in fast", 3), ("for h in fast", 3)]
    if sys.version_info < (3, 12)  # a comprehension has no frame of its own then: nothing shows where one ends
    else [("for _ in range(2)", 0), ("for h in fast", 0), ("for h in fast", 0)],
    of_a_generator: [("for _ in range(4)", 4), ("for value in values(X)", 4)],
    of_a_generator_in_an_expression: [("for _ in range(3)", 3), ("for value, x in pairs", 3)],
    of_subscripts: [("for i in range(3)", 3)],
    of_columns: [("for a, b in ((0, 1), (1, 3), (3, 4))", 3), ("for i in range(4)", 4)],
    of_blocks: [("for i in range(3)", 0)],
    in_place: [("for _ in range(3)", 3)],
    filled: [("for i in range(3)", 3)],
    added_to_rows: [("for i in range(4)", 4)],
    changed_in_parts: [("for i in range(3)", 3)],
    over_a_tensor: [("for row in X @ W", 3)],
    backward_through_earlier_steps: [("for _ in range(2)", 2), *[("for k in (1, 2, 3)", 3)] * 2],
    gradients_in_a_graph: [("for _ in range(3)", 3)],
    backward_now_and_then: [("for i in range(2), x in (X, X * 2)", 4)],
}


@pytest.mark.parametrize("case", COUNTS, ids=lambda case: case.__name__)
def test_turns_of_loops_are_those_that_ran_or_not_told(case: Callable[[], Tensor]) -> None:
    found = loops(recorded(case))
    expected = COUNTS[case]
    # a count that nobody can know is not told, and a loop inside it is no more certain
    assert [text for text, _ in expected if text not in dict(found)] == []
    assert [(text, turns) for text, turns in found if turns and (text, turns) not in expected] == []
    assert Counter(found) & Counter(expected) == Counter(expected)


@pytest.mark.parametrize("case", COUNTS, ids=lambda case: case.__name__)
def test_no_statement_and_no_call_holds_two_executions(case: Callable[[], Tensor]) -> None:
    """Each is found by how often the line ran: by a tracer, in a run of its own."""
    ran: Counter[int] = Counter()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != __file__ or frame.f_code.co_name.startswith("<"):
            return None
        if event == "line":
            ran[frame.f_lineno] += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        case()
    finally:
        sys.settrace(before)
    graph = recorded(case)
    of_line: Counter[int] = Counter()
    for construct in of_kind(graph, "statement"):
        if construct.source is not None and construct.source.function == case.__name__:
            of_line[construct.source.line] += 1
    for line, count in of_line.items():
        in_one_line = any(word in linecache.getline(__file__, line) for word in ("[F", "[torch", "(F"))
        assert count == (1 if in_one_line else ran[line]), (line, count, ran[line])


@needs_columns
def test_the_place_where_a_graph_is_read_ends_a_turn() -> None:
    with gradviz.record() as recording:
        for _ in range(2):
            total = torch.zeros(())
            for x in (X, X * 2, X * 3):
                total = total + (x @ W).sin().sum()
            graph = recording.graph(total)
    assert loops(graph) == [("for x in (X, X * 2, X * 3)", 3)]


def test_backward_ends_a_turn() -> None:
    def tasks() -> Tensor:
        for _ in range(3):
            total = torch.zeros(())
            for x in (X, X * 2):
                total = total + (x @ W).sin().sum()
            total.backward(retain_graph=True)
        return total

    assert loops(recorded(tasks)) == [("for x in (X, X * 2)", 2)]


@needs_columns
def test_what_ran_after_a_graph_is_no_turn_of_it() -> None:
    losses = []
    with gradviz.record() as recording:
        for _ in range(3):
            total = torch.zeros(())
            for x in (X, X * 2):
                total = total + (x @ W).sin().sum()
            total.backward(retain_graph=True)
            losses.append(total)
    assert [loops(recording.graph(loss)) for loss in losses] == [[("for x in (X, X * 2)", 2)]] * 3


def test_a_loop_of_very_many_turns_has_no_record_of_each() -> None:
    def long() -> Tensor:
        h = torch.ones(1, requires_grad=True) * 1
        for _ in range(3000):
            h = h * 0.999
        return h

    (loop,) = [construct for construct in recorded(long).program if construct.nodes and construct.kind != "function"]
    assert (loop.kind, loop.turn, len(loop.nodes)) == ("loop", 3000, 3000)


def test_calls_of_modules_are_turns() -> None:
    def layers() -> Tensor:
        h = X
        for layer in net:
            h = F.relu(layer(h)) + h
        return h

    net = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    graph = recorded(layers)
    assert loops(graph) == [("for layer in net", 3)]
    assert [len(one.scopes) for one in of_kind(graph, "statement") if one.text == "h"] == [1, 1, 1]


def test_a_generator_is_one_call_for_who_began_it() -> None:
    def losses() -> Iterator[Tensor]:
        for i in range(4):
            yield torch.sin(X @ W * i).sum()

    def two_more(found: Iterator[Tensor]) -> Tensor:
        return next(found) * next(found)

    def case() -> Tensor:
        found = losses()
        return next(found) + two_more(found) + next(found)

    graph = recorded(case)
    program = graph.program
    home = {node: i for i, construct in enumerate(program) for node in construct.nodes}
    made = [around(program, home[i]) for i, op in enumerate(graph.ops) if op == "SinBackward0"]
    functions = [[program[one].text for one in outer if program[one].kind == "function"] for outer in made]
    assert sorted(names[0] for names in functions) == ["case", "losses", "two_more", "two_more"]


# -- statements and calls ------------------------------------------------------------------------------------------------


def test_statements_are_named_by_what_they_assign() -> None:
    def loss_of(a: Tensor) -> Tensor:
        return (a * 2).exp() + 1

    def case() -> Tensor:
        kept: list[Tensor] = []
        table = torch.zeros(3, 4)
        a = (X @ W).sin(); b = (a * 2).cos()  # fmt: skip  # noqa: E702
        kept.append((a - b).exp())
        table[0] = (b * b)[0]
        loss = loss_of(a) + kept[0] + table
        return loss

    graph = recorded(case)
    told = [(construct.text, code_of(construct)) for construct in of_kind(graph, "statement")]
    assert ("a", "(X @ W).sin()") in told and ("b", "(a * 2).cos()") in told
    assert ("kept", "(a - b).exp()") in told and ("table[0]", "(b * b)[0]") in told
    assert ("", "(a * 2).exp() + 1") in told
    assert ("loss", "loss_of(a) + kept[0] + table") in told


class Physics:
    """Makes its tensors as it is made."""

    def __init__(self, x: Tensor, *, several: bool = False) -> None:
        self.x = x.double()
        self.t = (x * 2).sin() if several else x.exp()

    def __call__(self) -> Tensor:
        y = self.x * self.t
        return y + 1


@dataclass
class Rays:
    origin: Tensor

    def __post_init__(self) -> None:
        self.near, self.far = self.origin + 1, self.origin * 2 - 1

    @property
    def length(self) -> Tensor:
        return (self.far - self.near).abs()


@pytest.mark.parametrize("several", [False, True])
def test_what_a_constructor_computes_is_not_the_object(several: bool) -> None:
    def case() -> Tensor:
        physics = Physics(W * 1.00001, several=several)
        both = [Physics(w) for w in (W, W)]
        rays = Rays(W)
        value = physics()
        return value + rays.length + both[0].x * both[1].t

    told = {construct.text for construct in of_kind(recorded(case), "statement")}
    assert told.isdisjoint({"physics", "both", "rays"})
    assert "value" in told and ("self.t" in told) is several
    assert "self.far" in told


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("a, b = w * 2 + 1, v.exp().sin()\nloss = a + b", {"a": "w * 2 + 1", "b": "v.exp().sin()"}),
        ("both = {'a': w * 2 + 1, 'b': v}\nloss = both['a'] + both['b']", {"both['a']": "w * 2 + 1"}),
        ("def f():\n    return w * 2 + 1, v.exp().sin()\nloss = sum(f())", {"": "v.exp().sin()"}),
        ("a, *b = w * 2 + 1, v * 3 - 1\nloss = a + b[0]", {"a, *b": "w * 2 + 1, v * 3 - 1"}),
        ("a = b, c = w * 2 + 1, v * 3 - 1\nloss = b + c", {"a = b, c": "w * 2 + 1, v * 3 - 1"}),
    ],
)
def test_each_of_several_values_is_a_statement(code: str, parts: dict[str, str], tmp_path: Path) -> None:
    file, variables = tmp_path / "two.py", dict[str, Any](w=W, v=W * 1.5)
    file.write_text(code)
    with gradviz.record() as recording:
        exec(compile(code, str(file), "exec"), variables)
    statements = of_kind(recording.graph(variables["loss"]), "statement")
    assert {one.text: code_of(one) for one in statements if one.text != "loss"} == parts


def test_ops_are_called_what_the_script_called() -> None:
    def case() -> Tensor:
        rows = W * 1.00001
        a = F.dropout(rows, 0.5)
        b = rows.clone()
        b[0].mul_(3)
        return sum([a.mean(), b.mean()]) + rows[0, 0]

    graph = recorded(case)
    written = Counter(node.written for node in graph.nodes if node.written)
    assert {"* 1.00001", "dropout", "mul_"} <= set(written)
    assert written["sum"] == 2 or ("sum" in {construct.text for construct in of_kind(graph, "call")})
    assert "[0, 0]" in {construct.text for construct in of_kind(graph, "call")}


class Calls:
    """What each call from some files made, by the name of what was called: numbers of nodes."""

    def __init__(self, file: str) -> None:
        self._file, self._open = file, list[tuple[object, int]]()
        self.made: set[tuple[int, int]] = set()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        caller = frame if event.startswith("c_") else frame.f_back
        if caller is None or caller.f_code.co_filename != self._file:
            return
        if event in ("call", "c_call"):
            self._open.append((caller, peek_sequence()))
        elif self._open and self._open[-1][0] is caller:
            _, first = self._open.pop()
            if peek_sequence() > first:
                self.made.add((first, peek_sequence()))


QUICK = {
    "ppo_cleanrl",
    "realnvp_moons",
    "moe_router",
    "simclr",
    "reinforce",
    "clip_pairs",
    "autocast_bf16",
    "siamese_signatures",
}
ALL = sorted(path.stem for path in (ROOT / "tests/real/programs").glob("*.py"))
SOME = (pytest.mark.slow, pytest.mark.long)  # every other one in the usual tests


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else SOME[i % 2]) for i, n in enumerate(ALL)])
def test_a_call_holds_what_was_made_between_its_begin_and_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(ROOT / "tests/real/programs" / f"{name}.py")
    calls, before = Calls(file), sys.getprofile()
    sys.setprofile(calls)
    try:
        captured: Any = Run(parse_target(file), read_graph).captured()
    finally:
        sys.setprofile(before)
    graph = captured.result
    node_of = {node.sequence: node.id for node in graph.nodes if node.sequence is not None}
    spans = {frozenset(node_of[n] for n in range(*span) if n in node_of) for span in calls.made}
    for construct in of_kind(graph, "call"):
        is_operator = construct.text.startswith("[") or not construct.text.isidentifier()
        if construct.source is not None and construct.source.file == file and not is_operator:
            assert frozenset(construct.nodes) in spans, (construct, [graph.nodes[node].op for node in construct.nodes])
    assert of_kind(graph, "call") or name not in ("ppo_cleanrl", "realnvp_moons", "moe_router")


# -- the text is what ran ------------------------------------------------------------------------------------------------

BODY = "for _ in range(3):\n    h = (h @ w).sin()\n"


def executed(code: Any) -> Graph:
    names: dict[str, Any] = {"h": X, "w": W}
    with gradviz.record() as recording:
        exec(code, names)
    return recording.graph(names["h"].sum())


def test_an_edited_file_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "edited.py"
    file.write_text(BODY)
    code = compile(BODY, str(file), "exec")
    file.write_text(BODY.replace("sin", "cos") + "# and more\n")
    linecache.checkcache()
    graph = executed(code)
    assert loops(graph) == [] and of_kind(graph, "statement") == []
    assert any("edited.py" in note for note in graph.notes)


def test_code_without_a_text_says_nothing() -> None:
    graph = executed(BODY)
    assert loops(graph) == []
    assert any("<string>" in note for note in graph.notes)


def test_examples_of_a_docstring_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: list[Graph] = []
    text = """
    >>> with gradviz.record() as recording:
    ...     for _ in range(3):
    ...         h = (h @ w).sin()
    >>> graphs.append(recording.graph(h.sum()))
    """
    test = doctest.DocTestParser().get_doctest(
        text, {"gradviz": gradviz, "h": X, "w": W, "graphs": graphs}, "example", None, 0
    )
    assert doctest.DocTestRunner(verbose=False).run(test).failed == 0
    assert loops(graphs[0]) == [("for _ in range(3)", 3)]
