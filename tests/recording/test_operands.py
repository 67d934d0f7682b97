"""What ops were given that needs no gradient, by the code that gave it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

import gradviz
from gradviz.draw.options import Options
from gradviz.fold.grouping import grouped
from gradviz.graph import Graph
from gradviz.graph.origins import op_text
from gradviz.packages import is_foundation
from gradviz.page.inputs import input_boxes
from gradviz.walker.private import peek_sequence
from tests.drawn import footer_lines, scene, shown
from tests.walker.graphs import needs_columns, needs_raw

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
w = torch.randn(4, 4, requires_grad=True)
x, noise, idx = torch.randn(3, 4), torch.randn(3, 4), torch.tensor([0, 2])
"""

# which op computes attention of three dimensions changes with torch
_QUERY = torch.ones(1, 5, 4, requires_grad=True)
_OPS = gradviz.walk(torch.nn.functional.scaled_dot_product_attention(_QUERY, _QUERY, _QUERY)).ops
ATTENTION = next((op for op in _OPS if "Attention" in op), "BmmBackward0").removesuffix("Backward0")


def recorded(tmp_path: Path, text: str) -> Graph:
    """The graph of `loss` of a script."""
    file, code = tmp_path / "train.py", f"{HEAD}{text}\ngraph = recording.graph(loss)\n"
    file.write_text(code)
    with gradviz.record() as recording:
        variables: dict[str, Any] = {"recording": recording}
        exec(compile(code, str(file), "exec"), variables)
    graph: Graph = variables["graph"]
    return graph


def taken(graph: Graph) -> list[tuple[str, tuple[str, ...]]]:
    """Each name with the ops that take it."""
    ops = {node.id: node.op.removesuffix("0").removesuffix("Backward") for node in graph.nodes}
    return sorted((data.names[0], tuple(sorted(ops[node] for node in data.nodes))) for data in graph.data)


CASES = {
    "an expression": (
        "loss = (w[idx] * 2 + noise[idx]).sum()",
        [("idx", ("Index",)), ("noise", ()), ("noise[idx]", ("Add",))],
    ),
    "a local variable": (
        "def f():\n    mine = torch.randn(4, 4)\n    return w * 2 + mine\nloss = f().sum()",
        [("mine", ("Add",))],
    ),
    "a parameter": ("def f(a, b):\n    return a - b\nloss = f(w, x[0]).sum()", [("x", ()), ("x[0]", ("Sub",))]),
    "a comprehension": ("loss = sum([w + n for n in (x[0], x[1])]).sum()", [("n", ("Add",)), ("n", ("Add",))]),
    "a generator": (
        "def f(a, m):\n    for i in range(2):\n        yield w[i] * a + noise[0]\n"
        "loss = sum(z.sum() + row.sum() for z, row in zip(f(x, 3), w))",
        [("noise", ()), ("noise[0]", ("Add", "Add")), ("x", ("Mul", "Mul"))],
    ),
    "what a loop gives one name": (
        "loss = 0\nfor turn in range(2):\n    goal = torch.randn(4)\n    loss = loss + (w - goal).sum()",
        [("goal", ("Sub",)), ("goal", ("Sub",))],
    ),
    "a list that grows": (
        "ys = [x[0]]\nh = w + ys[-1]\nys.append(x[1])\nloss = (h + ys[-1]).sum()",
        [("ys[-1]", ("Add",)), ("ys[-1]", ("Add",))],
    ),
    "one name twice": ("loss = (w + x[0] - x[0]).sum()", [("x", ()), ("x[0]", ("Add", "Sub"))]),
    "a list of torch": ("loss = torch.cat([w, x], 0).sum()", [("x", ("Cat",))]),
    "a mask": ("loss = w.masked_fill(torch.ones(4, 4) > .5, 0.0).sum()", [("torch.ones(4, 4) > .5", ("MaskedFill",))]),
    "a condition": (
        "loss = torch.where(x[0] > 0, w, x[0]).sum()",
        [("x", ()), ("x[0]", ("Where",)), ("x[0] > 0", ("Where",))],
    ),
    "targets": (
        "loss = F.cross_entropy(F.embedding(idx, w), idx.reshape(-1))",
        [("idx", ("Embedding",)), ("idx.reshape(-1)", ("NllLoss",))],
    ),
    "0-d data": ("s = torch.tensor(2.0)\nloss = ((s + w) * (w + 1)).sum()", [("s", ("Add",))]),
    "numbers": (
        "eps, loss = 1e-3, 0\nfor n in range(2):\n    loss = loss + (2 / (w + eps) * n).sum()\nloss = sum([loss, loss])",
        [],
    ),
    "a sum that a dict keeps": (
        "total, net, goal = {'a': 0.0, 'b': 0.0}, nn.Linear(4, 4), torch.ones(4, 4)\n"
        "for n in range(2):\n    total['a'] += net(w).sum() * 2\n"
        "    total['b'] = total['b'] + F.mse_loss(net(w), goal)\nloss = sum(total.values())",
        [("goal", ("MseLoss", "MseLoss"))],
    ),
    "an index that its op calls otherwise": (
        "from torch.distributions import Bernoulli\nfor turn in range(1):\n    rows = idx.clone()[:, None]\n"
        "    loss = torch.take_along_dim(w[:2], rows, 1).sum() + Bernoulli(logits=w[0]).log_prob(x[0].gt(0).float()).sum()",
        [("rows", ("Gather",)), ("x", ()), ("x[0].gt(0).float()", ("BinaryCrossEntropyWithLogits",))],
    ),
    "what torch makes for itself": (
        "from torch.nn.utils.rnn import pack_padded_sequence\ndef f(h, lengths):\n"
        "    packed = pack_padded_sequence(h * 2, lengths, batch_first=True, enforce_sorted=False)\n    return packed.data\n"
        "loss = f(w[:3].unsqueeze(2), torch.tensor([2, 1, 2])).sum()",
        [],
    ),
    "what an op found": ("best, where = w.topk(2)\nloss = best.sum() + w.max(1)[0].sum() + w.sort()[0].sum()", []),
    "dropout's noise": ("loss = F.dropout(w, 0.5).sum() + nn.Dropout()(w).sum()", []),
    "a buffer": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.eps = 1e-3\n"
        "        self.register_buffer('lift', torch.ones(4))\n    def forward(self, v):\n        return v + self.lift + self.eps\n"
        "net = N()\nloss = net(w).sum()",
        [("self.lift", ("Add",))],
    ),
    "an argument of a module": (
        "class N(nn.Module):\n    def forward(self, v, when):\n        return torch.cat([v, when]) - when[0]\n"
        "when = torch.ones(2, 4)\nnet = N()\nloss = net(w, when).sum()",
        [("when", ("Cat",)), ("when[0]", ("Sub",))],
    ),
    "an encoder layer": (
        "src = torch.randn(2, 5, 8)\nloss = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(src).sum()",
        [("src", ("Add", "Mm"))],
    ),
    "l1_loss": ("loss = F.l1_loss(w, x[:1])", [("x", ()), ("x[:1]", ("Sub",))]),
    "label smoothing": (
        "classes = idx.repeat(2)\nloss = F.cross_entropy(w, classes, label_smoothing=0.1)",
        [("classes", ("NllLoss",))],
    ),
    "soft targets": ("soft = x.softmax(1)[:1]\nloss = F.cross_entropy(w[:1], soft)", [("soft", ("Mul",))]),
    "a kernel of a function": (
        "def f(h):\n    k, b = torch.rand(2, 1, 3), torch.rand(2)\n    return F.conv1d(h[:, None], k, b)\nloss = f(w).sum()",
        [("b", ("Convolution",)), ("k", ("Convolution",))],
    ),
    "hinge_embedding_loss, which begins with its margin": (
        "h = w * 2\nt = torch.ones(4, 4)\nloss = F.hinge_embedding_loss(h, t)",
        [("t", ("Where", "Where"))],
    ),
    "cosine_embedding_loss": (
        "t = torch.ones(4)\nloss = F.cosine_embedding_loss(w, w[:1], t)",
        [("t", ("Where", "Where"))],
    ),
    "margin_ranking_loss": (
        "a, t = torch.rand(4, 4), torch.ones(4, 4)\nloss = F.margin_ranking_loss(a, w, t)",
        [("a", ("Sub",)), ("t", ("Mul",))],
    ),
    "gaussian_nll_loss": (
        "t, v = torch.ones(4, 4), torch.ones(4, 4)\nloss = F.gaussian_nll_loss(w, t, v)",
        [("t", ("Sub",)), ("v", ("Div",))],
    ),
    "a log_prob": (
        "t = torch.ones(4, 4)\nloss = -torch.distributions.Normal(w, 1.0).log_prob(t).mean()",
        [("t", ("Sub",))],
    ),
    "a log_prob of what has a gradient": (
        "h, zero = w * 2, torch.zeros(4)\nloss = -torch.distributions.Gumbel(zero, zero + 1).log_prob(h).mean()",
        [("zero", ("Sub",)), ("zero + 1", ("Div",))],
    ),
    "a triplet": (
        "near, far = torch.ones(4, 4), torch.zeros(4, 4)\nloss = F.triplet_margin_loss(w * 2, near, far)",
        [("near", ("Sub",)), ("far", ("Sub",))],
    ),
    "a triplet in a function": (
        "def apart(a, b, c):\n    return F.triplet_margin_loss(a, b, c)\nloss = apart(w * 2, w * 3, torch.ones(4, 4))",
        [("c", ("Sub",))],
    ),
    "a triplet of what has a gradient": ("h = w * 2\nloss = F.triplet_margin_loss(h, h * 3, w.exp())", []),
    "weights of a loss": (
        "loss = F.cross_entropy(w * 2, torch.tensor([0, 1, 2, 3]), torch.tensor([1.0, 2, 3, 4]))",
        [("torch.tensor([0, 1, 2, 3])", ("NllLoss",)), ("torch.tensor([1.0, 2, 3, 4])", ("NllLoss",))],
    ),
    "attention of three dimensions": (
        "k, v = torch.ones(1, 5, 4), torch.ones(1, 5, 4)\nloss = F.scaled_dot_product_attention(w[None] * 2, k, v).sum()",
        [("k", (ATTENTION,)), ("v", (ATTENTION,))],
    ),
    "what a distribution was made of": (
        "apart = torch.ones(4)\nfound = torch.distributions.Normal(w * 2, apart)\nloss = -found.log_prob(torch.ones(1)).sum()",
        [("torch.ones(1)", ("Sub",)), ("apart", ("Div",))],
    ),
    "kl_div of logarithms": (
        "q, p = w.log_softmax(1), torch.ones(4, 4)\nloss = F.kl_div(q, p, log_target=True, reduction='sum')",
        [("p", ("Mul",))],
    ),
    "kl_div": (
        "soft = x.softmax(1)[:1]\nloss = F.kl_div(w.log_softmax(1), soft, reduction='batchmean')",
        [("soft", ("Mul",))],
    ),
    "a loss that is made where it is called": (
        "loss = nn.KLDivLoss(reduction='sum')(w[:3].log_softmax(1), F.softmax(x / 4.0, dim=1))",
        [("F.softmax(x / 4.0, dim=1)", ("Mul",)), ("x", ())],
    ),
    "einsum": ("loss = torch.einsum('nc,kc->nk', noise, w).sum()", [("noise", ("Bmm",))]),
    "einsum of a list": (
        "loss = torch.einsum('nc,nc->n', [w[:3], noise.tanh()]).sum()",
        [("noise.tanh()", ("Bmm",)), ("noise", ())],
    ),
    "batches of a list": (
        "batches, losses = [(x + 1, x + 2), (x + 3, x + 4)], []\nfor a, b in batches:\n"
        "    losses.append(((w[:3] * a - b) ** 2).mean())\nloss = sum(losses)",
        [("a", ("Mul",)), ("a", ("Mul",)), ("b", ("Sub",)), ("b", ("Sub",))],
    ),
    "functional_call": (
        "from torch.func import functional_call\nnet = nn.Linear(4, 4, bias=False)\n"
        "def f(given):\n    return functional_call(net, {'weight': w * 2}, (given,))\nloss = f(x).sum()",
        [("x", ("Mm",))],
    ),
    "a parameter of a lambda": (
        "far = lambda a, b, by=2.0: ((a - b) * by).abs()\nnear = [lambda a, b: a + b]\n"
        "def f(goal):\n    return far(w, goal).sum() + near[0](w, goal).sum()\nloss = f(x[:1])",
        [("b", ("Add",)), ("x", ()), ("x[:1]", ("Sub",))],
    ),
    "what a module makes before the first one with a gradient": (
        "net = nn.Sequential(nn.ZeroPad2d(1), nn.ReflectionPad2d(1), nn.Conv2d(1, 2, 3))\nimages = [torch.rand(2, 1, 6, 6)]\n"
        "def f(mine):\n    return net(mine)\nloss = f(images[0]).sum()",
        [("ReflectionPad2d(ZeroPad2d(images[0]))", ("Convolution",)), ("images[0]", ())],
    ),
    "what a function computes of what it is given": (
        "class N(nn.Module):\n    def forward(self, v, when):\n        both = torch.cat([v, when[:, :1]], 1)[:, 1:]\n"
        "        own = torch.ones(when.size(0), 4)\n        return both @ w + own\n"
        "net = N()\ndef f():\n    mine, when = x + 1, x * 2\n    return net(mine, when).sum()\nloss = f()",
        [("both", ("Mm",)), ("own", ("Add",)), ("x", ())],
    ),
    "a mask that is over": (
        "class N(nn.Module):\n    def forward(self, v, empty):\n        return v.masked_fill(empty[:, None] == 0, 0.0)\n"
        "net = N()\ndef f(limit, least=0):\n    mask = (x[0] > limit).view(4)\n    only = least is None\n"
        "    return net(w, mask) * (least == only)\nloss = f(0.5).sum()",
        [("empty[:, None] == 0", ("MaskedFill",)), ("mask", ()), ("x", ())],
    ),
    "several indices": (
        "def at():\n    return 1\nrows, columns = idx, idx + 1\nloss = w[rows, columns, None].sum() + w[None, columns, 0].sum()\n"
        "loss = loss + w[at(), rows].sum() + w[:, rows].sum()",
        [("columns", ("Index", "Index")), ("idx", ("Index", "Index", "Index"))],
    ),
    "an element that is set": (
        "out = torch.zeros(4, 4)\nout[idx, idx + 1] = w[0, :2]\nloss = out.sum()",
        [("idx", ("IndexPut",)), ("idx + 1", ("IndexPut",)), ("out", ("IndexPut",))],
    ),
    "masks that an encoder makes numbers of": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
        "        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)\n"
        "    def forward(self, h):\n        empty = torch.zeros(2, 4) > 1\n        later = torch.ones(4, 4).triu(1) > 0\n"
        "        return self.encoder(h, later, src_key_padding_mask=empty)\n"
        "net = N()\nloss = net(torch.randn(2, 4, 8, requires_grad=True)).sum()",
        [("empty", ("Add",)), ("later", ("Add",))],
    ),
    "masks of a decoder": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16), 1)\n"
        "    def forward(self, h, memory):\n        later, hidden = torch.ones(3, 3).triu(1) > 0, torch.zeros(3, 5) > 1\n"
        "        return self.decoder(h, memory, later, memory_mask=hidden)\n"
        "net = N()\nloss = net(torch.randn(3, 2, 8, requires_grad=True), torch.randn(5, 2, 8, requires_grad=True)).sum()",
        [("hidden", ("Add",)), ("later", ("Add",))],
    ),
    "a mask of attention without dropout": (
        "h, later = torch.randn(4, 2, 8, requires_grad=True), torch.ones(4, 4).triu(1) > 0\n"
        "def f():\n    mine = later.clone()\n"
        "    return nn.MultiheadAttention(8, 2)(h, h, h, attn_mask=mine, need_weights=False)[0]\nloss = f().sum()",
        [("later", ()), ("mine", ("ScaledDotProductFlashAttentionForCpu",))],
    ),
    "the first turn of a loop that hands on a variable": (
        "def block(v):\n    return v @ w + v\ndef net(given):\n    h = given\n    for _ in range(3):\n        h = block(h)\n"
        "    return h - given\nloss = net(x).sum()",
        [("x", ("Add", "Mm", "Sub"))],
    ),
    "another name that a loop keeps": (
        "def net(given):\n    h = skip = given\n    for _ in range(3):\n        before = h\n        h = h @ w\n"
        "        h = h.exp() + before\n    return h\nloss = net(x).sum()",
        [("x", ("Add", "Mm"))],
    ),
    "a loop that begins without gradients": (
        "def f(h, turn):\n    return h @ w + h if turn > 1 else h + 1\ndef net(h):\n    for turn in range(4):\n"
        "        torch.set_grad_enabled(turn > 1)\n        h = f(h, turn)\n    return h\nloss = net(x).sum()",
        [("h", ("Add", "Mm"))],
    ),
    "a loop whose first turn is another": (
        "def net(given):\n    h = given\n    for turn in range(3):\n        if turn == 0:\n            h = given + noise\n"
        "        h = h @ w + h\n    return h\nloss = net(x).sum()",
        [("h", ("Add", "Mm"))],
    ),
    "a module with the name of a method": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.item = nn.Embedding(3, 4).requires_grad_(False)\n    def forward(self, v, ids):\n"
        "        return v[ids] * self.item(ids)\nnet = N()\nloss = net(w, idx).sum() * x.size(0)",
        [("idx", ("Index",)), ("self.item(ids)", ("Mul",))],
    ),
    "an empty tensor": ("loss = torch.cat([w, torch.empty(0)]).sum()", [("torch.empty(0)", ("Cat",))]),
    "what an attribute held before it got another value": (
        "class N(nn.Module):\n    def forward(self, rows):\n        self.state = torch.ones(2)\n        for row in rows:\n"
        "            self.state = torch.cat([row, self.state])[:2].exp()\n        return self.state\n"
        "net = N()\nloss = net(w).sum()",
        [("self.state", ("Cat",))],
    ),
    "what an attribute held before it was changed in place": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.sum = torch.zeros(4)\n"
        "    def forward(self, v):\n        both = v - self.sum\n        self.sum += both[0]\n        return self.sum\n"
        "net = N()\nloss = net(w).sum()",
        [("self.sum", ("Add", "Sub"))],
    ),
    "an attribute that two calls find with other values": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.mean = torch.zeros(4)\n"
        "    def forward(self, v):\n        far = v - self.mean\n        self.mean = v.detach().mean(0)\n        return far\n"
        "net = N()\nloss = (net(w) + net(w)).sum()",
        [("self.mean", ("Sub",)), ("self.mean", ("Sub",))],
    ),
    "an attribute that began as a number": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.sum = 0\n"
        "    def forward(self, v):\n        self.sum = v + self.sum\n        return self.sum\n"
        "net = N()\nloss = (net(w) + net(w)).sum()",
        [],
    ),
}


SAVED = ("several indices", "an encoder layer", "functional_call", "a loss that is made where it is called")
"""What only a saved tensor tells."""


UNTRIED = ("an encoder layer", "what a loop gives one name", "what a module makes before the first one with a gradient")
"""What no expression gives again in the frames of the call."""


BY_COLUMN = (
    "a parameter of a lambda",
    "what a module makes before the first one with a gradient",
    "an element that is set",
)
MARKS = {**dict.fromkeys(SAVED, needs_raw), **dict.fromkeys(BY_COLUMN, needs_columns)}


@pytest.mark.parametrize("case", [pytest.param(case, marks=MARKS.get(case, ())) for case in CASES])
def test_the_code_names_what_an_op_was_given(case: str, tmp_path: Path) -> None:
    text, expected = CASES[case]
    graph = recorded(tmp_path, text)
    assert taken(graph) == sorted(expected)
    assert not any("not drawn" in line for line in footer_lines(graph))


def test_an_expression_hangs_on_what_it_is_computed_from(tmp_path: Path) -> None:
    graph = recorded(tmp_path, "loss = (w + noise[idx].mean(0) + x[0]).sum()")
    names = [data.names[0] for data in graph.data]
    assert {names[i]: {names[k] for k in data.of} for i, data in enumerate(graph.data) if data.of} == {
        "noise[idx].mean(0)": {"noise", "idx"},
        "x[0]": {"x"},
    }
    drawn = scene(graph, Options())
    title = {box.id: box.lines[0] for box in drawn.boxes}
    dashed = {(title[link.source], title[link.target]) for link in drawn.links if link.style == "cut"}
    assert dashed == {("noise", "noise[idx].mean(0)"), ("idx", "noise[idx].mean(0)"), ("x", "x[0]")}


FROM = {
    "one of several": (
        "def g(pair):\n    a, b = pair\n    return w * a.exp()\nloss = g(noise[:2]).sum()",
        {"a.exp()": {"noise"}},
    ),
    "a list that is gone through": (
        "def g(rows):\n    for m, n in zip((1, 2, 3), rows):\n        s = w * n.exp()\n    return s\nloss = g(noise).sum()",
        {"n.exp()": {"noise"}},
    ),
    "what nothing holds any more": (
        "def g(h):\n    m = (h * 2).float()\n    return w * (m[0] * 2)\nloss = g(noise).sum()",
        {"m[0] * 2": {"noise"}},
    ),
    "one of several that a function gives": (
        "def pair(h, k):\n    return torch.ones(4), k.exp()\ndef g(h):\n    a, b = pair(h, x)\n    return w * a.exp()\n"
        "loss = g(noise).sum()",
        {"a.exp()": set()},
    ),
    "what has a gradient": (
        "def g(h):\n    k = h[0] @ w\n    return w * (k.detach() * 2)\nloss = g(noise).sum()",
        {"k.detach() * 2": set()},
    ),
    "what a module makes": (
        "net = nn.Linear(4, 4)\ndef g(h):\n    k = net(h)\n    return w * (k[0].detach() * 2)\nloss = g(noise).sum()",
        {"k[0].detach() * 2": set()},
    ),
    "an argument that ** hands on": (
        "def inner(h, by=None):\n    return h * by.exp()\ndef outer(h, **options):\n    return inner(h, **options)\n"
        "loss = outer(w, by=noise[0]).sum()",
        {"by.exp()": {"noise"}},
    ),
    "what data of a module is computed from in turn": (
        "class Masked(nn.Module):\n    def forward(self, h, lengths):\n        mask = torch.arange(4)[None] < lengths[:, None]\n"
        "        return (h[:2] * mask.unsqueeze(-1)[..., 0]).sum()\nloss = Masked()(w, idx)",
        {"mask.unsqueeze(-1)[..., 0]": {"mask"}, "mask": {"idx"}},
    ),
    "several, of which one is not known": (
        "def g(a, i):\n    z = a * torch.exp(noise)\n    return w[:3] * z + noise[i]\nloss = g(torch.ones(3, 4), 0).sum()",
        {"z": set(), "noise[i]": {"noise"}},
    ),
    "by an index of a loop that goes back": (
        "def g(a):\n    for i in reversed(range(2)):\n        z = a[i] * 2\n        h = w[:3] * z\n    return h\nloss = g(x).sum()",
        {"z": {"x"}},
    ),
    "by a method": (
        "class N(nn.Module):\n    def two(self, a):\n        return torch.cat([a, a])\n    def forward(self, a):\n"
        "        z = self.two(a)[:4]\n        return w * z\nloss = N()(x).sum()",
        {"z": {"x"}},
    ),
    "several that are known": (
        "def g(a):\n    z = a * torch.exp(noise)\n    return w[:3] * z\nloss = g(x).sum()",
        {"z": {"x", "noise"}},
    ),
    "an argument out of **": (
        "def g(h, **options):\n    by = options['by']\n    return h * by[0]\nloss = g(w, by=noise).sum()",
        {"by[0]": {"noise"}},
    ),
}


@pytest.mark.parametrize("case", FROM)
@needs_raw
def test_it_hangs_on_that_also_where_the_code_goes_round_about(case: str, tmp_path: Path) -> None:
    text, expected = FROM[case]
    graph = recorded(tmp_path, text)
    names = [data.names[0] for data in graph.data]
    found = {names[i]: {names[k] for k in data.of} for i, data in enumerate(graph.data) if data.nodes or data.of}
    assert found == expected


@needs_raw
def test_what_einsum_is_given_is_one_box_also_where_its_caller_has_it(tmp_path: Path) -> None:
    text = "def f(q):\n    k = F.normalize(noise, dim=1)\n    return torch.einsum('nc,nc->n', [q, k]), k\n"
    graph = recorded(tmp_path, f"{text}found, keys = f(w[:3])\nloss = found.sum()")
    assert [(data.names, data.tensor.shape) for data in graph.data if data.nodes] == [(("k",), (3, 4))]


@needs_raw
def test_what_a_function_computes_is_called_as_there_not_as_its_caller_does_later(tmp_path: Path) -> None:
    text = "def f(q):\n    k = x.exp()\n    return torch.mul(q, k), k\n"
    graph = recorded(tmp_path, f"{text}found, keys = f(w[:3])\nloss = found.sum()")
    assert taken(graph) == [("k", ("Mul",)), ("x", ())]
    # an op of the caller's takes it, too
    graph = recorded(tmp_path, f"{text}found, keys = f(w[:3])\nloss = (found * keys).sum()")
    assert taken(graph) == [("keys", ("Mul", "Mul"))]


@needs_raw
def test_what_is_computed_in_place_in_a_part_of_data_says_its_sign_and_the_data(tmp_path: Path) -> None:
    graph = recorded(tmp_path, "z = torch.zeros(4, 4)\nz[0] -= w[0]\nz[1] *= w[1].exp()\nloss = z.sum()")
    assert taken(graph) == [("z", ("CopySlices",))]
    titles = [op_text(node) for node in graph.nodes if node.op == "CopySlices"]
    assert sorted(titles) == ["[0] -=", "[0] =", "[1] *=", "[1] ="]
    graph = recorded(
        tmp_path, "out, rows = torch.zeros(4, 4), torch.tensor([0, 2])\nout[rows] += w[rows] * 2\nloss = out.sum()"
    )
    assert {"out", "out[rows]", "rows"} <= {data.names[0] for data in graph.data if data.nodes}


@needs_raw
def test_a_divergence_takes_all_that_both_distributions_were_made_of(tmp_path: Path) -> None:
    text = "from torch.distributions import Normal, kl_divergence\nmu, one = torch.zeros(4), torch.ones(4)\n"
    graph = recorded(tmp_path, f"{text}loss = kl_divergence(Normal(w * 2, w.exp()), Normal(mu, one)).sum()")
    assert taken(graph) == [("mu", ("Sub",)), ("one", ("Div", "Div"))]


@needs_raw
def test_a_gradient_takes_the_gradient_that_it_begins_with_unless_that_has_one_itself(tmp_path: Path) -> None:
    text = "y = w.exp()\none = torch.ones_like(y)\n{}\ng, = torch.autograd.grad(y, w, {}, create_graph=True)\nloss = g.sum()"
    assert ("one", ("Mul",)) in taken(recorded(tmp_path, text.format("", "one")))
    graph = recorded(tmp_path, text.format("v = torch.ones_like(y, requires_grad=True)", "v"))
    assert "v" not in [data.names[0] for data in graph.data]


@needs_raw
def test_lists_are_no_operands_nor_is_what_a_sequence_was_given_that_of_its_last_layer(tmp_path: Path) -> None:
    text = "targets = torch.ones(4, 2, dtype=torch.long)\nlogs = (w[None] * 2).log_softmax(-1).expand(5, 4, 4)\n"
    graph = recorded(tmp_path, f"{text}loss = F.ctc_loss(logs, targets, [5] * 4, [2] * 4)")
    assert [name for name, _ in taken(graph)] == ["targets"]
    text = "class Twice(nn.Module):\n    def forward(self, h):\n        return h * w\n"
    graph = recorded(
        tmp_path, f"{text}net, h = nn.Sequential(Twice(), nn.Linear(4, 2)), torch.ones(4, 4)\nloss = net(h).sum()"
    )
    assert taken(graph) == [("h", ("Mul",))]


@needs_raw
def test_of_attention_the_first_op_does_not_take_its_context(tmp_path: Path) -> None:
    text = "attend, context = nn.MultiheadAttention(4, 2), torch.ones(6, 4)\n"
    graph = recorded(tmp_path, f"{text}loss = attend(w * 2, context, context)[0].sum()")
    ((name, ops),) = taken(graph)
    assert name == "context" and ops and "Mul" not in ops


CHANGED = {
    "a leaf": "z = torch.ones(4, 4)\nz.requires_grad_()\nloss = F.triplet_margin_loss(w * 2, z, torch.zeros(4, 4))",
    "a copy": "from torch.distributions import Normal, kl_divergence\nz = torch.zeros(4, 4)\nz.copy_(w)\n"
    "loss = kl_divergence(Normal(w * 2, w.exp()), Normal(z, torch.ones(4))).sum()",
    "in a function": "def filled():\n    z = torch.zeros(4, 4)\n    z.requires_grad_()\n"
    "    return F.triplet_margin_loss(w * 2, z, torch.zeros(4, 4))\nloss = filled()",
    "by a function": "def fill(t):\n    t.requires_grad_()\ndef filled():\n    z = torch.zeros(4, 4)\n    fill(z)\n"
    "    return F.triplet_margin_loss(w * 2, z, torch.zeros(4, 4))\nloss = filled()",
    "an attribute": "class Kept:\n    pass\nkept, y = Kept(), w.exp()\nkept.z = torch.ones(4, 4)\nkept.z.requires_grad_()\n"
    "g, = torch.autograd.grad(y, w, kept.z, create_graph=True)\nloss = g.sum()",
}


@pytest.mark.parametrize("case", CHANGED)
@needs_raw
def test_what_was_made_of_nothing_and_has_a_gradient_now_is_no_data(case: str, tmp_path: Path) -> None:
    graph = recorded(tmp_path, CHANGED[case])
    assert not [ops for name, ops in taken(graph) if name.endswith("z") and ops != ("CopyBackwards",)]


@needs_raw
def test_a_part_that_an_attribute_holds_is_not_the_object_that_holds_it(tmp_path: Path) -> None:
    text = (
        "class Kept:\n    pass\nkept, z = Kept(), torch.zeros(4, 4)\nkept.row = z[0]\nkept.row += w[0]\nloss = z.sum()"
    )
    assert [name for name, _ in taken(recorded(tmp_path, text))] == ["kept.row"]


@needs_raw
def test_what_a_method_of_a_distribution_may_not_use_is_no_operand(tmp_path: Path) -> None:
    text = "from torch.distributions import Normal\nmu = torch.zeros(4)\nloss = Normal(mu, w.exp()).entropy().sum()"
    assert taken(recorded(tmp_path, text)) == []


MAY_BE = """
class Scaled(nn.Module):
    def __init__(self, shift=None):
        super().__init__()
        self.shift = shift
    def moved(self, h):
        return h if self.shift is None else F.scaled_dot_product_attention(h, h, h, attn_mask=self.shift)
    def forward(self, h):
        return self.moved(h)
"""


@needs_raw
def test_what_may_be_a_number_or_none_is_no_input(tmp_path: Path) -> None:
    text = "def f(h, std=0.0):\n    drawn = torch.randn(4) * std if std > 0 else 0.0\n    return h + drawn\nloss = f(w * 2).sum()"
    assert taken(recorded(tmp_path, text)) == []
    text = text.replace("return h + drawn", "return h * drawn").replace("f(w * 2)", "f(w, 1.0)")
    assert taken(recorded(tmp_path, text)) == [("drawn", ("Mul",))]  # which the op keeps
    text = f"{MAY_BE.replace('h if self.shift is None else ', '')}h = w[None]\n"
    found = recorded(tmp_path, f"{text}loss = (Scaled()(h) + Scaled(torch.zeros(4, 4))(h)).sum()")
    assert [name for name, ops in taken(found) if ops] == ["self.shift"]
    assert len(found.data[0].nodes) == 1
    text = text.replace("h = w[None]", "h = w[None, None]")  # another op of torch's computes it
    found = recorded(tmp_path, f"{text}loss = (Scaled()(h) + Scaled(torch.zeros(4, 4))(h)).sum()")
    assert [(data.names, data.tensor.shape, len(data.nodes)) for data in found.data] == [(("self.shift",), (4, 4), 1)]


@needs_raw
def test_the_state_of_a_recurrent_layer_is_an_input(tmp_path: Path) -> None:
    text = "layer = nn.LSTM(4, 4)\nstate = torch.zeros(1, 1, 4), torch.ones(1, 1, 4)\n"
    graph = recorded(tmp_path, f"{text}loss = layer(w[:, None], state)[0].sum()")
    assert [name for name, _ in taken(graph)] == ["state"]


@needs_raw
def test_a_target_that_log_prob_repeats_is_one_box_without_the_shape_of_the_view(tmp_path: Path) -> None:
    text = """
def f(rows):
    scores = (rows @ w).expand(5, 3, 4)
    return -torch.distributions.Bernoulli(logits=scores).log_prob(rows).sum()
signs = (x > 0).float()
loss = f(signs)"""
    (data,) = recorded(tmp_path, text).data
    assert data.names == ("signs",) and data.tensor.shape == (3, 4) and len(data.nodes) == 2


def test_an_index_of_two_statements_of_a_turn_is_one(tmp_path: Path) -> None:
    loop = "def f(v):\n    for i in range(3):\n        s = (0 if i == 0 else s) + w[v[i]].sum()\n"
    loop += "        s = s + w[:, v[i]].sum()\n    return s\n"
    graph = recorded(tmp_path, f"{loop}loss = f(torch.tensor([[0, 1], [1, 2], [2, 3]]))")
    assert [len(data.nodes) for data in graph.data if data.names == ("v[i]",)] == [2, 2, 2]


@needs_raw
def test_a_shape_is_told_only_where_something_holds_the_tensor(tmp_path: Path) -> None:
    graph = recorded(tmp_path, "loss = (w * x[0] + x[1]).sum()")
    assert {data.names[0]: data.tensor.shape for data in graph.data} == {"x": (3, 4), "x[0]": (4,), "x[1]": None}


@pytest.mark.parametrize("case", CASES)
def test_picture_and_page_show_the_same_data(case: str, tmp_path: Path) -> None:
    graph = recorded(tmp_path, CASES[case][0])
    picture = [box.lines[0] for box in scene(graph.fold(), Options()).boxes if box.kind == "input"]
    page = [box.title for box in input_boxes(grouped(graph))]
    assert sorted(page) == sorted(picture)


WRITTEN = """
class Gated(nn.Module):
    def forward(self, x):
        gate = torch.ones(3, 4)
        return x * gate

class Proto:
    def __init__(self):
        self.encoder = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.Tanh()), Gated())
    def loss(self, sample):
        support = torch.cat([sample, sample])[:3]
        return self.encoder(support).sum()

proto = Proto()
loss = proto.loss(x)
"""


@needs_raw  # what a layer is given, such a torch does not tell
def test_data_stands_in_no_module_whose_code_did_not_write_it(tmp_path: Path) -> None:
    graph = recorded(tmp_path, WRITTEN)
    drawn = scene(graph, Options(depth="all"))
    inside = {box.lines[0]: box.frame for box in drawn.boxes if box.kind == "input"}
    assert inside["support"] is None
    assert drawn.frames[inside["gate"]].title == "1 Gated"
    page = {box.title: box.group.number for box in input_boxes(grouped(graph))}
    assert page["support"] == 0 < page["gate"]


class Given(TorchFunctionMode):
    """Keeps what each call of torch was given, and the variables of the frames around it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[int, int, list[torch.Tensor], list[tuple[Any, Any]]]] = []

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = peek_sequence()
        given = [one.detach().clone() for one in tree_leaves((args, kwargs)) if type(one) is torch.Tensor]
        frames, frame = [], sys._getframe(1)
        while frame is not None:
            if not is_foundation(frame.f_code.co_filename):
                frames.append((frame.f_globals, dict(frame.f_locals)))
            frame = frame.f_back  # type: ignore[assignment]
        result = function(*args, **(kwargs or {}))
        self.calls.append((before, peek_sequence(), given, frames))
        return result


def is_true(text: str, given: list[torch.Tensor], frames: list[tuple[Any, Any]]) -> bool:
    """Whether a text, in one of the frames, is something that torch was given."""
    for outside, inside in frames:
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                value = eval(text, outside, inside)
        except NameError:
            continue
        for one in given:
            if not isinstance(value, torch.Tensor) or one.numel() != value.numel():
                continue
            if torch.equal(one.flatten().to(value.dtype), value.detach().flatten()):
                return True
    return False


@pytest.mark.parametrize("case", [case for case in CASES if case not in UNTRIED])
def test_every_title_is_true_in_the_frames(case: str, tmp_path: Path) -> None:
    text, _ = CASES[case]
    with Given() as seen:
        graph = recorded(tmp_path, text)
    for data in graph.data:
        for node in data.nodes:
            sequence = graph.nodes[node].sequence or 0
            *_, given, frames = next(call for call in seen.calls if call[0] <= sequence < call[1])
            assert is_true(data.text or data.names[0], given, frames), data


LEAVES = {
    "passed on": "def f(a):\n    return (a * w[0]).sum()\ndef g():\n    mine = (x * 2).requires_grad_()\n    return f(mine)",
    "to a module": (
        "class N(nn.Module):\n    def forward(self, v):\n        return torch.cat([v, w]).sum()\nnet = N()\n"
        "def g():\n    mine = torch.ones(4, 4, requires_grad=True)\n    return net(mine)"
    ),
    "a loop": "def g():\n    for mine in [torch.ones(4, requires_grad=True)]:\n        return (mine * w).sum()",
    "to a layer": ("net = nn.Tanh()\ndef g():\n    mine = (x * 2).requires_grad_()\n    return (net(mine) @ w).sum()"),
    "to layers in layers": (
        "net = nn.Sequential(nn.Sequential(nn.Tanh()), nn.Flatten())\n"
        "def g():\n    mine = (x * 2).requires_grad_()\n    return (net(mine) @ w).sum()"
    ),
    "to layers of a model": (
        "class N(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.net = nn.Sequential(nn.Tanh())\n"
        "    def forward(self, v):\n        return self.net(v) @ w\nnet = N()\n"
        "def g():\n    mine = (x * 2).requires_grad_()\n    return net(mine).sum()"
    ),
    "in another shape": (
        "def f(a):\n    return a.view(a.shape[0], -1)\n"
        "def g():\n    mine = (x * 2).requires_grad_()\n    return (f(mine) @ w).sum()"
    ),
}


@pytest.mark.parametrize("case", LEAVES)
def test_a_leaf_of_a_function_that_is_over_is_called_as_the_code_has_it(case: str, tmp_path: Path) -> None:
    graph = recorded(tmp_path, f"{LEAVES[case]}\nloss = g()")
    assert sorted(leaf.names[0] for leaf in graph.leaves) == ["mine", "w"]


def test_a_variable_of_several_turns_is_one_also_where_the_last_value_is_there(tmp_path: Path) -> None:
    code = "def f():\n    parts = []\n    for R in torch.randn(5):\n        parts.append((w * R).sum())\n    return sum(parts), R\n"
    graph = recorded(tmp_path, f"{code}loss, R = f()")
    assert [(data.names, data.inner, data.scope) for data in graph.data] == [(("R",), True, -1)] * 5


OVERLAP = """
def overlap(a, b):
    (x1, w1), (x2, w2) = a.chunk(2, 1), b.chunk(2, 1)
    inter = (torch.min(x1 + w1, x2 + w2) - torch.max(x1, x2)).clamp(0)
    least = torch.full((5, 1), 1e-6)
    return inter / (w1 + w2 - inter + least)
boxes, loss = torch.rand(5, 2), 0.0
head, feat = nn.Linear(6, 2), torch.rand(5, 6)
for i in range(2):
    loss = loss + (1 - overlap(head(feat).sigmoid(), boxes)).mean()
"""


@needs_columns
def test_what_a_closed_function_computes_of_its_data_is_not_drawn_beside_it(tmp_path: Path) -> None:
    graph = recorded(tmp_path, OVERLAP)
    options = Options(depth=1)
    drawn = scene(shown(graph, options), options)
    inputs = {box.id: box.lines[0] for box in drawn.boxes if box.kind == "input"}
    assert sorted(inputs.values()) == ["boxes", "feat"]
    into = {
        inputs[link.source]: (drawn.boxes[link.target].lines[0], link.style)
        for link in drawn.links
        if link.source in inputs
    }
    assert into["boxes"] == ("for i in range(2) ×2", "cut")
    every = scene(graph, Options(depth="all"))
    assert {"x2", "w2", "least", "boxes"} <= {box.lines[0] for box in every.boxes if box.kind == "input"}


def test_the_state_of_a_layer_is_not_called_as_its_input(tmp_path: Path) -> None:
    text = "def state():\n    return torch.randn(4, 5, 3)[:1], torch.randn(4, 5, 3)[:1]\n"
    text += "lstm = nn.LSTM(4, 3)\nrows = torch.randn(6, 5, 4) @ w\nloss = lstm(rows, state())[0].sum()"
    assert "rows" not in {data.names[0] for data in recorded(tmp_path, text).data}


ATTENTION = """
class Attn(nn.Module):
    def __init__(self, mask):
        super().__init__()
        self.attn, self.mask = nn.MultiheadAttention(16, 4), mask
    def forward(self, h):
        return h + self.attn(h, h, h, need_weights=False, attn_mask=self.mask)[0]
mask = torch.full((5, 5), float("-inf")).triu_(1)
blocks = [Attn(mask) for _ in range({blocks})]
if {blocks} > 1:
    del mask
net = nn.Sequential(*blocks)
loss = net(torch.randn(5, 2, 16)).sum()
"""


@needs_raw
@pytest.mark.parametrize("blocks", [1, 3])
def test_a_mask_is_no_other_data_of_attention_and_stands_around_all_that_share_it(blocks: int, tmp_path: Path) -> None:
    graph = recorded(tmp_path, ATTENTION.format(blocks=blocks))
    shapes = {data.names[0]: data.tensor.shape for data in graph.data}
    assert shapes.pop("mask", None) == (5, 5) or shapes.pop("self.mask") == (5, 5)
    assert [*shapes.values()] == [(5, 2, 16)]
    drawn = scene(graph, Options(depth="all"))
    (frame,) = [box.frame for box in drawn.boxes if "mask" in box.lines[0]]
    assert frame is None or "Sequential" in drawn.frames[frame].title or blocks == 1


@needs_raw
def test_a_part_of_a_tensor_that_a_module_flattens_is_called_as_the_code_has_it(tmp_path: Path) -> None:
    text = "f, g = nn.Linear(2, 4), nn.Sequential(nn.Linear(2, 4), nn.Tanh())\nrows = torch.rand(6, 4, 4)\n"
    text += "first = rows[..., :2]\nloss = (f(first) * g(rows[..., 2:])).sum()"
    graph = recorded(tmp_path, text)
    taken_by_ops = {data.names[0]: data.tensor.shape for data in graph.data if data.nodes}
    assert taken_by_ops == {"first": (6, 4, 2), "rows[..., 2:]": None}


@needs_raw
def test_a_target_has_no_shape_that_cross_entropy_made_of_it(tmp_path: Path) -> None:
    graph = recorded(
        tmp_path,
        "t = torch.tensor([[0, 1, 2, 3]] * 3)\nloss = F.cross_entropy(x[:, :, None] * w[:, 1:], t[:, 1:]).sum()",
    )
    shapes = {data.names[0]: data.tensor.shape for data in graph.data}
    assert shapes["t[:, 1:]"] is None and shapes["t"] == (3, 4)


@pytest.mark.parametrize("more", ["append(h)", "insert(0, h)"])
def test_what_a_list_began_with_is_drawn_and_else_counted(more: str, tmp_path: Path) -> None:
    text = "def f(a):\n    h = a\n    rows = [a]\n    for _ in range(2):\n        h = h * w[:3]\n"
    text += f"        rows.{more}\n    return torch.stack(rows)\nloss = f(x).sum()"
    graph = recorded(tmp_path, text)
    is_drawn = ("x", ("Mul", "Stack")) in taken(graph)
    assert is_drawn == ("append" in more)
    assert any("not drawn: 1 input" in line for line in footer_lines(graph)) != is_drawn


def test_what_einsum_is_given_has_no_shape_that_torch_made_of_it(tmp_path: Path) -> None:
    graph = recorded(
        tmp_path, "def f():\n    mine = x + 1\n    return torch.einsum('nc,kc->nk', mine, w)\nloss = f().sum()"
    )
    assert [(data.names[0], data.tensor.shape) for data in graph.data] == [("mine", None), ("x", (3, 4))]


BUFFERS = """
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
        self.register_buffer("noise", torch.ones(4, 4))
        self.register_buffer("mask", torch.ones(1, 4, 8))
    def forward(self, x):
        h = F.linear(x, self.weight * self.noise) * self.mask[0, :3, :4]
        return h.relu() + h.tanh() + h.sigmoid() + h.exp() + x
first, second = Noisy(), Noisy()
loss = second(first(x)).sum()
"""


def test_what_a_module_has_of_its_own_is_drawn_where_the_module_is_open(tmp_path: Path) -> None:
    graph = recorded(tmp_path, BUFFERS)
    own = ["self.mask[0, :3, :4]", "self.noise"]
    for options, expected in (
        (Options(depth=1), []),
        (Options(depth=1, expand=("first",)), own),
        (Options(depth="all"), own * 2),
    ):
        drawn = scene(shown(graph, options), options)
        inside = [box for box in drawn.boxes if box.kind == "input" and box.lines[0] != "x"]
        assert sorted(box.lines[0] for box in inside) == sorted(expected)
        assert all(box.frame is not None for box in inside)
    page = {box.title: box.group.number for box in input_boxes(grouped(graph))}
    assert page["x"] == 0 < min(page[name] for name in own)


LOOP = """
def steps(h):
    for turn in range(6):
        noise, mask = torch.randn(4), torch.ones(4 if turn else 1)
        h = torch.tanh(h * 2 + noise).exp().cos().sin().relu().sigmoid() * mask
    return h
loss = steps(w).sum()
"""


CLOSED = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))
    def forward(self, x):
        noise, mine = torch.randn(4), torch.cat([x, x])[:3]
        return (mine @ self.weight).exp().sin().cos() + noise
first, second = Part(), Part()
loss = second(first(x)).sum()
"""


def test_what_a_closed_module_made_for_itself_is_not_drawn_beside_it(tmp_path: Path) -> None:
    graph = recorded(tmp_path, CLOSED)
    for options, expected in ((Options(depth=1), ["x"]), (Options(depth="all"), ["mine", "noise", "noise", "x"])):
        drawn = scene(shown(graph, options), options)
        assert sorted(box.lines[0] for box in drawn.boxes if box.kind == "input") == expected
        x = next(box.id for box in drawn.boxes if box.lines[0] == "x")
        assert [link.style for link in drawn.links if link.source == x] == ["cut"]
        assert not any("not drawn" in line for line in drawn.footer)


def test_what_a_closed_module_made_is_drawn_where_nothing_but_parameters_enters_it(tmp_path: Path) -> None:
    text = """
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(5, 1)
    def forward(self, v):
        left, right = torch.split(v, [3, 1], -1)
        return self.b(torch.cat([self.a(left).relu(), right], -1))
def run(two, data):
    return two(data[:2]) * two(data[2:])
loss = run(Two(), torch.randn(4, 4)).sum()
"""
    drawn = scene(shown(recorded(tmp_path, text), Options(depth=3)), Options(depth=3))
    closed = next(box.id for box in drawn.boxes if box.lines[0] == "Two, call 2")
    titles = {box.id: box.lines[0] for box in drawn.boxes}
    assert {titles[link.source] for link in drawn.links if link.target == closed} == {"left", "right"}


def test_what_the_shown_turn_of_a_loop_takes_and_what_the_others_take_is_one_box(tmp_path: Path) -> None:
    graph = recorded(tmp_path, LOOP)
    drawn = scene(shown(graph, Options()), Options())
    boxes = {box.lines[0]: box for box in drawn.boxes}
    takers = {drawn.boxes[link.target].lines[0] for link in drawn.links if link.source == boxes["noise ×6"].id}
    assert "for turn in range(6) ×5" in takers
    assert len(takers) == 2
    assert boxes["noise ×6"].frame is not None
    assert {box.title: box.group.kind for box in input_boxes(grouped(graph))}["noise ×6"] == "run"


def test_a_sum_with_a_number_says_which(tmp_path: Path) -> None:
    graph = recorded(
        tmp_path,
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.eps = 1e-5
        self.shift = torch.ones(4)
    def forward(self, t):
        a = w.exp() + self.eps
        b = self.eps + a
        c = b - t
        d = t - c
        d = d + len(self.shift)
        d = d + (0.0 if t is None else self.shift)
        total = 0
        for k in range(2):
            d = d + k
            total = total + d
        return (total + self.shift) * t
net = Net()
loss = sum([net(0.5).sum()])
""",
    )
    texts = [op_text(node) for node in graph.nodes]
    expected = {"+ self.eps", "self.eps +", "- t", "t -", "+ len(self.shift)", "+ k"}
    # of what may be a tensor, and of the 0 that nobody wrote, the op says nothing
    assert {*texts} - {"AccumulateGrad", "exp", "sum", "mul", "* 0.5"} == {*expected, "add"}, texts


def test_a_variable_of_the_script_is_not_that_of_a_function_of_its_name(tmp_path: Path) -> None:
    graph = recorded(
        tmp_path,
        """
act, rows = torch.randint(0, 4, (3,)), torch.arange(2)
def update(act):
    global loss
    logp = torch.distributions.Categorical(logits=x[:2] @ w).log_prob(act)
    loss = logp.sum()
    return recording.graph(loss)
graph = update(act[rows])
""",
    )
    shapes = {data.names[0]: data.tensor.shape for data in graph.data}
    assert shapes["act[rows]"] is None and shapes.get("act", (3,)) == (3,)


@needs_raw
def test_the_states_that_a_recurrent_layer_begins_with_stand_beside_its_input(tmp_path: Path) -> None:
    text = "net = nn.LSTM(4, 6, batch_first=True)\nxs, h0, c0 = torch.randn(2, 5, 4), torch.randn(1, 2, 6), torch.randn(1, 2, 6)\n"
    graph = recorded(tmp_path, f"{text}out, _ = net(xs, (h0, c0))\nloss = out.sum()")
    assert {data.names[0]: data.of for data in graph.data} == {"xs": (), "h0": (), "c0": ()}
