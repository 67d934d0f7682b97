"""Scripts that fail: the exception is a finding with cause and cure, and the cure, followed to the letter, helps."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from gradviz.checks.rules.raised import TOPICS
from gradviz.checks.rules.raised.messages import messages, understood
from gradviz.cli.main import cli
from tests.checks.test_scripts import check, written
from tests.command_line import CliRunner
from tests.rows import every_other


class Case(NamedTuple):
    """A script, the line that is to blame, a piece of the advice, and what in the script the advice replaces by what."""

    text: str
    line: str
    advice: str
    replace: tuple[str, str]
    id: str = "raised"


HEAD = """
import copy
import torch
torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
x = torch.ones(2, 3)
"""
# ruff: noqa: E501
CASES = {
    "several numbers": Case(
        "losses = torch.nn.functional.mse_loss(model(x), torch.ones(2, 1), reduction='none')\nlosses.backward()",
        "losses.backward()", "losses.mean().backward()", ("losses.backward()", "losses.mean().backward()"),
    ),
    "several numbers of an own loss": Case(
        "losses = (model(x) - 1).square()\nlosses.backward()",
        "losses.backward()", "losses.mean().backward()", ("losses.backward()", "losses.mean().backward()"),
    ),
    "a complex loss": Case(
        "losses = (torch.fft.rfft(model(x), dim=0) - 1).pow(2).mean()\nlosses.backward()",
        "losses.backward()", "(a - b).abs().square().mean()", (".pow(2).mean()", ".abs().square().mean()"),
    ),
    "an error of a hook": Case(
        "out = model(x)\nout.register_hook(lambda g: g + missing_number)\nout.sum().backward()",
        "g + missing_number", "set_detect_anomaly(True)", ("g + missing_number", "g + 1"),
    ),
    "a batch of one that is squeezed": Case(
        "scores = model(x[:1]).squeeze()\nloss = torch.nn.functional.binary_cross_entropy_with_logits(scores, torch.ones(1))",
        "binary_cross_entropy", "squeeze(-1) in place of squeeze()", (".squeeze()", ".squeeze(-1)"),
    ),
    "samples that a view multiplies": Case(
        "rows = torch.nn.Linear(2, 3)(torch.ones(4, 2, 2).view(-1, 2))\n"
        "loss = torch.nn.functional.cross_entropy(rows, torch.zeros(4, dtype=torch.long))",
        "cross_entropy", "x.view(x.size(0), -1)", ("torch.nn.Linear(2, 3)(torch.ones(4, 2, 2).view(-1, 2))", "torch.nn.Linear(4, 3)(torch.ones(4, 2, 2).flatten(1))"),
    ),
    "a schedule that is too short": Case(
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=2)\n"
        "for step in range(4):\n    optimizer.zero_grad()\n    model(x).square().mean().backward()\n    optimizer.step()\n    schedule.step()",
        "schedule.step()", "total_steps=epochs * len(loader)", ("total_steps=2", "total_steps=4"),
    ),
    "features that do not fit": Case(
        "loss = model(torch.ones(2, 3, 1).reshape(1, 6)).sum()",
        "reshape(1, 6)", "x.flatten(1)", (".reshape(1, 6)", ".flatten(1)"),
    ),
    "labels of two dimensions": Case(
        "labels = torch.zeros(2, 1, dtype=torch.long)\nloss = torch.nn.functional.cross_entropy(torch.nn.Linear(3, 4)(x), labels)",
        "cross_entropy", "labels.squeeze(1)", ("cross_entropy(torch.nn.Linear(3, 4)(x), labels)", "cross_entropy(torch.nn.Linear(3, 4)(x), labels.squeeze(1))"),
    ),
    "labels that are floats": Case(
        "labels = torch.zeros(2)\nloss = torch.nn.functional.cross_entropy(torch.nn.Linear(3, 4)(x), labels)",
        "cross_entropy", "labels.long()", ("(3, 4)(x), labels)", "(3, 4)(x), labels.long())"),
    ),
    "an id without a row": Case(
        "table = torch.nn.Embedding(3, 2)\nout = table(torch.tensor([0, 3]))",
        "table(", "num_embeddings", ("Embedding(3, 2)", "Embedding(4, 2)"),
    ),
    "not used": Case(
        "noise = torch.zeros(2, 3, requires_grad=True)\nscore = model(x + noise.detach()).sum()\n"
        "slope = torch.autograd.grad(score, noise)",
        "noise.detach()", "leave out .detach() or .data", ("noise.detach())", "noise)"),
    ),
    "not used, through something computed of it": Case(
        "noise = torch.zeros(2, 3, requires_grad=True)\nhalf = noise / 2\nscore = model(x + half.detach()).sum()\n"
        "slope = torch.autograd.grad(score, noise)",
        "half.detach()", "leave out .detach() or .data", ("half.detach())", "half)"),
    ),
    "a recurrent layer of cuDNN in eval mode": Case(
        "out = model(x)\ndef refused(g):\n    raise RuntimeError('cudnn RNN backward can only be called in training mode')\n"
        "out.register_hook(refused)\nout.sum().backward()",
        "raise RuntimeError", "Call .train() on the recurrent layer", ("raise RuntimeError(", "print("),
    ),
    "too few gradients": Case(
        "class Mine(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x, k):\n        return x * 2\n    @staticmethod\n"
        "    def backward(ctx, g):\n        return g * 2\n"
        "loss = Mine.apply(model(x), 3).sum()\nloss.backward()",
        "return g * 2", "Return 2 values from Mine.backward(), in the order of the arguments of forward(): None for", ("return g * 2", "return g * 2, None"),
    ),
    "a gradient of the wrong shape": Case(
        "class Mine(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.sum(0)\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return torch.ones(3)\n"
        "loss = Mine.apply(model(x)).sum()\nloss.backward()",
        "return torch.ones(3)", "sum it over the dimensions", ("torch.ones(3)", "g.expand(2, 1)"),
    ),
    "a gradient in another shape": Case(
        "class Mine(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.sum(1)\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return torch.cat([g, g])\n"
        "loss = Mine.apply(torch.nn.Linear(3, 2)(x)).sum()\nloss.backward()",
        "return torch.cat", "torch.stack along the dimension that is missing, and not with torch.cat", ("torch.cat([g, g])", "torch.stack([g, g], 1)"),
    ),
    "another way in a checkpoint": Case(
        "import random\nfrom torch.utils.checkpoint import checkpoint\nrandom.seed(2)\n"
        "def run(x):\n    for _ in range(30):\n        if random.random() < 0.5:\n            x = torch.tanh(x)\n    return x\n"
        "checkpoint(run, model(x), use_reentrant=False).sum().backward()",
        "checkpoint(run|x = torch.tanh(x)", "draw with torch.rand(()), whose generator the checkpoint sets back", ("random.random() <", "torch.rand(()) <"),
    ),
    "another way in a checkpoint, from a counter": Case(
        "from torch.utils.checkpoint import checkpoint\ncalls = []\n"
        "def run(x):\n    calls.append(1)\n    return x.exp().sin() if len(calls) % 2 else torch.tanh(x)\n"
        "checkpoint(run, model(x), use_reentrant=False).sum().backward()",
        "checkpoint(run|return x.exp()", "Decide in front of the checkpoint, and give the decision to the function as an argument",
        ("def run(x):\n    calls.append(1)\n    return x.exp().sin() if len(calls) % 2", "def run(x, odd=True):\n    return x.exp().sin() if odd"),
    ),
    "an own optimizer and a layer that is not used": Case(
        "model.aside = torch.nn.Linear(3, 1)\nmodel(x).sum().backward()\n"
        "with torch.no_grad():\n    for p in model.parameters():\n        p -= 0.1 * p.grad",
        "p -= 0.1", "leave out what has no gradient", ("model.aside = torch.nn.Linear(3, 1)\n", ""),
        "raised",
    ),
    "two losses behind one forward pass": Case(
        "h = torch.tanh(model(x))\nfirst, second = h.sum(), h.square().sum()\nfirst.backward()\nsecond.backward()",
        "second.backward()", "add up the losses of one forward pass, and call backward() once", ("first.backward()\nsecond.backward()", "(first + second).backward()"),
        "freed-graph",
    ),
    "rows of a loop in place": Case(
        "rows = model(x)\nfor row in rows:\n    row += 1\nrows.sum().backward()",
        "row += 1", "rows = rows + change", ("for row in rows:\n    row += 1", "rows = rows + 1"),
    ),
    "a hook on data": Case(
        "x.register_hook(print)\nmodel(x).sum().backward()",
        "x.register_hook", "x.requires_grad_() before the forward pass", ("x.register_hook", "x.requires_grad_().register_hook"),
    ),
    "a gradient of another size": Case(
        "model.weight.grad = torch.ones(3)\nmodel(x).sum().backward()",
        "model.weight.grad =", "p.grad = gradient.reshape(p.shape).to(p)", ("torch.ones(3)\n", "torch.ones(3).reshape(model.weight.shape)\n"),
    ),
    "an expanded tensor in place": Case(
        "rows = torch.zeros(1, 3).expand(2, 3)\nrows += x\nmodel(rows).sum().backward()",
        "rows += x", "x = x.clone()", ("rows += x", "rows = rows.clone()\nrows += x"),
    ),
    "several numbers as one": Case(
        "loss_of = torch.nn.MSELoss(reduction='none')\nloss = loss_of(model(x), torch.ones(2, 1))\nprint(loss.item())\nloss.mean().backward()",
        "reduction='none'", "losses.mean().item()", ("loss.item()", "loss.mean().item()"),
    ),
    "a Function in the older form under vmap": Case(
        "class Mine(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n"
        "    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n"
        "torch.func.vmap(Mine.apply)(model(x)).sum().backward()",
        "torch.func.vmap", "set generate_vmap_rule = True in the class",
        ("    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n",
         "    generate_vmap_rule = True\n    @staticmethod\n    def forward(x):\n        return x * 2\n"
         "    @staticmethod\n    def setup_context(ctx, inputs, output):\n        pass\n"),
    ),
    "no memory": Case(
        "model(torch.ones(10**15, 3)).sum().backward()",
        "10**15", "with a smaller batch", ("10**15", "2"),
    ),
    "a leaf in place": Case(
        "model.weight += 0.1\nmodel(x).sum().backward()",
        "model.weight +=", "with torch.no_grad():", ("model.weight += 0.1", "with torch.no_grad():\n    model.weight += 0.1"),
    ),
    "a view of a leaf in place": Case(
        "model.weight[0, 1] = 0.0\nmodel(x).sum().backward()",
        "model.weight[0", "with torch.no_grad():", ("model.weight[0", "with torch.no_grad():\n    model.weight[0"),
    ),
    "a gradient that is None": Case(
        "w = torch.ones(3, requires_grad=True) * 2\nloss = (w * x).sum()\nloss.backward()\nstep = 0.1 * w.grad.sum()",
        "w = torch.ones", "w = (torch.ones(3) * 2).requires_grad_()",
        ("torch.ones(3, requires_grad=True) * 2", "(torch.ones(3) * 2).requires_grad_()"),
        "raised|none-grad",
    ),
    "an optimizer of results": Case(
        "w = torch.ones(3, requires_grad=True) * 0.1\noptimizer = torch.optim.SGD([w], lr=0.1)\n(w * x).sum().backward()",
        "w = torch.ones", "w = (torch.ones(3) * 0.1).requires_grad_()",
        ("torch.ones(3, requires_grad=True) * 0.1", "(torch.ones(3) * 0.1).requires_grad_()"),
    ),
    "inference tensors": Case(
        "with torch.inference_mode():\n    features = torch.sin(x)\nmodel(features).sum().backward()",
        "torch.inference_mode()", "torch.no_grad() instead of inference_mode()", ("inference_mode", "no_grad"),
    ),
    "a copy of a result": Case(
        "model.last = model(x).sum()\nmodel.last.backward()\nbest = copy.deepcopy(model)",
        "deepcopy(", "Store last without its graph", ("best =", "model.last = model.last.detach()\nbest ="),
    ),
    "a second backward": Case(
        "loss = model(x).square().sum()\nloss.backward()\nloss.backward()",
        "loss.backward()", "Compute", ("loss.backward()\nloss", "loss.backward()\nloss = model(x).square().sum()\nloss"), "freed-graph",
    ),
    "no backward": Case(
        "class Mine(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x.sign()\n"
        "loss = Mine.apply(model(x)).sum()\nloss.backward()",
        "loss.backward()", "Write it below forward()",
        ("x.sign()", "x.sign()\n    @staticmethod\n    def backward(ctx, gradient):\n        return gradient"),
    ),
    "a hook before a change in place": Case(
        "net = torch.nn.Sequential(model, torch.nn.ELU(inplace=True))\n"
        "model.register_full_backward_hook(lambda *_: None)\nnet(x.clone().requires_grad_()).sum().backward()",
        "inplace=True", "leave out inplace=True", ("inplace=True", ""),
    ),
    "a reentrant checkpoint behind autograd.grad": Case(
        "y = x.clone().requires_grad_()\n"
        "energy = torch.utils.checkpoint.checkpoint(model, y, use_reentrant=True).square().sum()\n"
        "force = torch.autograd.grad(energy, y, create_graph=True)[0]\nforce.square().sum().backward()",
        "use_reentrant=True", "pass use_reentrant=False", ("use_reentrant=True", "use_reentrant=False"),
    ),
    "two dtypes": Case(
        "y = x.double()\nmodel(y).sum().backward()",
        "model(y)", "such as x.float() for data from NumPy", ("x.double()\n", "x.double()\ny = y.float()\n"),
    ),
    "parameters gone through twice": Case(
        "given = model.parameters()\nprint(len(list(given)))\noptimizer = torch.optim.SGD(given, lr=0.1)\n"
        "for i in range(3):\n    optimizer.zero_grad()\n    model(x).square().sum().backward()\n    optimizer.step()",
        "given = model", "given = list(model.parameters())", ("= model.parameters()", "= list(model.parameters())"),
    ),
    "a tied weight in two groups": Case(
        "words, head = torch.nn.Embedding(3, 3), torch.nn.Linear(3, 3)\nhead.weight = words.weight\n"
        "optimizer = torch.optim.SGD([dict(params=words.parameters()), dict(params=head.parameters())], lr=0.1)\n"
        "head(words(torch.tensor([1]))).square().sum().backward()",
        "SGD(", "[p for p in ... if p is not words.weight]",
        ("params=head.parameters()", "params=[p for p in head.parameters() if p is not words.weight]"),
    ),
    "no parameter": Case(
        "class Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.layers = [model]\n"
        "net = Net()\noptimizer = torch.optim.SGD(net.parameters(), lr=0.1)\nnet.layers[0](x).sum().backward()",
        "SGD(net", "torch.nn.ModuleList", ("[model]", "torch.nn.ModuleList([model])"),
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", every_other(CASES))
def test_the_exception_is_found_and_the_advice_helps(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    script = HEAD + case.text
    found, code = check(written(tmp_path, script))
    assert code == 1
    alarms = [one for one in found if one["severity"] == "error" or one["id"] in case.id.split("|")]
    assert {one["id"] for one in alarms} <= set(case.id.split("|")) and alarms
    lines = script.split("\n")
    blamed = [one["where"].rpartition(":")[2] for one in alarms]
    assert any(part in lines[int(number) - 1] for number in blamed if number.isdigit() for part in case.line.split("|"))
    assert any(case.advice in one["fix"] for one in alarms), alarms
    assert script.count(case.replace[0]) == 1
    found, code = check(written(tmp_path, script.replace(*case.replace)))
    assert code == 0, found


def test_nothing_found_is_never_said_above_a_traceback(tmp_path: Path) -> None:
    path = written(tmp_path, HEAD + "model(x).sum().backward()\n{}['key']\n")
    report = CliRunner().invoke(cli, ["check", str(path)])
    assert report.exit_code == 3
    assert "Nothing found" not in report.output
    assert "The script failed, and no check explains it: KeyError: 'key'" in report.stdout
    found, code = check(path)
    assert (found, code) == ([], 3)


def test_a_long_message_of_torch_is_wrapped_as_the_report_is(tmp_path: Path) -> None:
    text = HEAD + "loss = model(x).exp().sum()\nloss.backward()\nloss.backward()\n"
    report = CliRunner().invoke(cli, ["check", str(written(tmp_path, text))])
    lines = report.output.splitlines()
    said = next(i for i, line in enumerate(lines) if line.startswith("The script then failed: RuntimeError: Trying"))
    assert len(lines) - said > 3 and max(map(len, lines)) <= 80


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    ["import nowhere_to_be_found", "raise ValueError('some parameters appear in more than one parameter group')"],
)
def test_json_is_printed_whenever_a_script_fails(text: str, tmp_path: Path) -> None:
    assert check(written(tmp_path, textwrap.dedent(text))) == ([], 3)


def test_an_allocation_is_told_whole(tmp_path: Path) -> None:
    found, _ = check(written(tmp_path, HEAD + "model(torch.ones(10**13, 3)).sum().backward()\n"))
    (one,) = (one for one in found if one["id"] == "raised")
    assert one["summary"] == "out of memory: 120000000000000 bytes could not be allocated"
    assert "this line asked for 120000000000000 bytes" in one["why"]


DISTRIBUTED = """
import torch
from torch import distributed, nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.spare = nn.Linear(3, 2), nn.Linear(2, 2)
    def forward(self, x):
        return self.body(x)
distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
try:
    net = nn.parallel.DistributedDataParallel(Net()OPTIONS)
    for step in range(2):
        net(torch.ones(2, 3)).sum().backward()
finally:
    distributed.destroy_process_group()
"""


@pytest.mark.slow
def test_what_distributed_data_parallel_raises_is_an_effect_of_unused_parameters(tmp_path: Path) -> None:
    report = CliRunner().invoke(cli, ["check", str(written(tmp_path, DISTRIBUTED.replace("OPTIONS", "")))])
    assert "no gradient for its parameters 2 3" in " ".join(report.output.split())
    found, _ = check(written(tmp_path, DISTRIBUTED.replace("OPTIONS", ", find_unused_parameters=True")))
    assert {one["id"] for one in found} == {"unused-parameter"}


TEXTS = {
    "Adam cannot use": "Adam does not support sparse gradients, please consider SparseAdam instead",
    "batch normalization": "Expected more than 1 value per channel when training, got input size torch.Size([1, 8])",
    "a recurrent layer ran in eval() mode": "cudnn RNN backward can only be called in training mode",
    "the hook <lambda> returns": "hook '<lambda>' has changed the size of value",
    "the gradient given to backward": "Mismatch in shape: grad_output[0] has a shape of torch.Size([2]) and output[0] has "
    "a shape of torch.Size([3]).",
    "what a module with a full backward hook": "Output 0 of BackwardHookFunctionBackward is a view and is being modified "
    "inplace. This view was created inside a custom Function",
    "a part of a tensor that is gone through": "Output 0 of UnbindBackward0 is a view and is being modified inplace.",
    "a view from a function that gives several": "Output 0 of SplitBackward0 is a view and is being modified "
    "inplace. This view is the output of a function that returns multiple views.",
    "a view is changed in place": "Output 0 of AsStridedBackward0 is a view and is being modified inplace.",
    "backward makes NaN in Sqrt": "Function 'SqrtBackward0' returned nan values in its 0th output.",
    "autograd.grad was asked": "One of the differentiated Tensors appears to not have been used in the graph.",
    "a second derivative runs": "trying to differentiate twice a function that was marked with @once_differentiable",
    "a GradScaler was told to step": "No inf checks were recorded for this optimizer.",
    "a GradScaler was not updated": "step() has already been called since the last update().",
    "backward meets Float": "Found dtype Float but expected Half",
    "tensors of two devices": "Expected all tensors to be on the same device, but found at least two devices",
    "out of memory": "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.1 GiB",
    "DistributedDataParallel fails": "Expected to have finished reduction in the prior iteration before starting a new one. "
    "Parameter indices which did not receive grad for rank 0: 2 3",
    "a method is used": "unsupported operand type(s) for +=: 'float' and 'builtin_function_or_method'",
    "backward() was called on a float": "'float' object has no attribute 'backward'",
    "MSELoss is made": "'MSELoss' object has no attribute 'backward'",
    "loss.grad is None": "'NoneType' object has no attribute 'norm'\nloss.grad.norm()",
    "the loss is given label 5": "Target 5 is out of bounds.",
    "backward() ran a second time": "Trying to backward through the graph a second time (or directly access saved tensors "
    "after they have already been freed).",
    "a tensor that backward needs": "one of the variables needed for gradient computation has been modified by an inplace "
    "operation",
    "{name} has no graph": "element 0 of tensors does not require grad and does not have a grad_fn",
}


@pytest.mark.parametrize("summary", TEXTS)
def test_what_torch_says_is_known(summary: str) -> None:
    found = understood(TEXTS[summary], messages(*TOPICS))
    assert found is not None and found[0].summary.format_map(Known(found[1])).startswith(summary)


class Known(dict[str, str]):
    """Groups of a pattern; what is no group stays as it is."""

    def __missing__(self, key: str) -> str:
        return f"{{{key}}}"


def test_every_row_names_what_there_is() -> None:
    for message in messages(*TOPICS, "backward"):
        groups = re.compile(message.pattern).groupindex
        given = dict.fromkeys([*groups, *["name", "missing", "shape", "line", "at", "new", "custom"]], "")
        for text in (message.summary, message.why, message.fix, message.fix_there):
            text.format(**given)
        assert message.why and message.fix and message.find in ("", "cut", "leaf")
        assert bool(message.fix_there) == bool(message.replace or message.find)
