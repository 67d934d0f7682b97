"""What lines say: of parameters that leave a box, and of what a call of torch views before it computes."""

from __future__ import annotations

from pathlib import Path

from gradviz.draw.options import Options
from tests.drawn import scene, shown
from tests.recording.test_operands import recorded

HEADS = """
heads = nn.ModuleList([nn.Linear(4, n) for n in range(5, 9)])
outs = [head(x).tanh().sum() for head in heads]
"""


def lines(tmp_path: Path, text: str) -> tuple[set[str], set[tuple[str, str, str]]]:
    """The texts of boxes, and the labelled lines between boxes, of the first picture of a script."""
    options = Options()
    made = scene(shown(recorded(tmp_path, text), options), options)
    links = {(made.boxes[one.source].lines[0], made.boxes[one.target].lines[0], one.label) for one in made.links}
    return {": ".join(box.lines) for box in made.boxes}, {link for link in links if link[2]}


def test_parameters_that_leave_a_box_are_named(tmp_path: Path) -> None:
    text = HEADS + "reg = sum(p.square().sum() for p in heads.parameters())\nloss = sum(outs) + reg"
    boxes, links = lines(tmp_path, text)
    assert "heads.0 Linear: 25 parameters" in boxes
    leaving = {label for source, target, label in links if "Linear" in source and "tanh" not in target}
    assert leaving and leaving <= {"weight", "bias", "weight, bias"}, links


def test_a_module_has_the_parameters_that_are_drawn_beside_it(tmp_path: Path) -> None:
    text = "net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))\nl1 = net[0].weight.abs().sum()\nloss = net(x).sum() + l1"
    boxes, _ = lines(tmp_path, text)
    assert {"0 Linear: 15 parameters", "1 Linear: 8 parameters", "net.0.weight: (3, 4)"} <= boxes


def test_no_shape_of_what_a_call_views_is_told_of_the_op_before_it(tmp_path: Path) -> None:
    text = "enc = torch.randn(2, 4, 8)\nnet = nn.Linear(8, 4)\nh = torch.randn(2, 8)\n"
    text += "loss = torch.einsum('bt,bth->bh', net(h).softmax(-1), enc).sin().sum()"
    _, links = lines(tmp_path, text)
    assert ("net Linear", "softmax", "(2, 4)") in links
    assert not [label for source, _, label in links if source == "softmax" and label != "(2, 4)"]


def test_a_view_that_a_module_returns_is_not_called_as_its_base(tmp_path: Path) -> None:
    text = (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.l = nn.Linear(4, 1)\n"
    )
    text += "    def forward(self, v):\n        q = self.l(v)\n        return torch.squeeze(q, -1)\n"
    graph = recorded(tmp_path, text + "net = N()\nloss = net(x).cos().sum()")
    made = scene(shown(graph, Options(depth=1)), Options(depth=1))
    assert [link.label for link in made.links if made.boxes[link.source].lines[0] == "net N"] == ["(3,)"]
