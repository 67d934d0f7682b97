"""The faults: each operator is a function of one node of a program's syntax tree, which gives what takes the node's place.

None where the node is no place for the fault. Knows nothing of gradviz; which rows of a finding's advice undo an
operator is a pattern over the advice.
"""

from __future__ import annotations

import ast
import copy
import pickle
import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple

Change = Callable[[Any, "Program"], Any]


class Program:
    """What operators ask of a program: the names of its models and optimizers, and its training loops."""

    def __init__(self, tree: ast.Module) -> None:
        text = ast.unparse(tree)
        self.optimizers = set(re.findall(r"([\w.]+) = [\w.]*?(?:optim\.)?(?:SGD|Adam|AdamW|RMSprop|Adagrad)\(", text))
        names = re.findall(r"(?:SGD|Adam|AdamW|RMSprop|Adagrad)\(([\w.]+)\.parameters\(\)", text)
        self.models = [name for name in dict.fromkeys(names) if name != "self"]
        loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
        steps = [loop for loop in loops if ".backward()" in ast.unparse(loop)]
        # the innermost one that calls backward
        self.loops = [ast.dump(loop) for loop in steps if not any(one in steps for one in list(ast.walk(loop))[1:])]


class Operator(NamedTuple):
    """A fault. `undone` is a pattern over the advice that takes it back; `line` one over lines that may be named beside
    those that changed. `silent`: it changes no gradient, and is real by what it does. `raises`: it is one only where torch
    refuses it, since a program that has more dropout, or other numbers, may be right.
    """

    change: Change
    undone: str
    line: str = "$^"
    silent: bool = False
    raises: bool = False

    @property
    def name(self) -> str:
        return self.change.__name__


class Place(NamedTuple):
    """Where an operator has something to change: the n-th node of a program."""

    operator: Operator
    text: str
    n: int

    def mutant(self) -> str:
        """The program with the fault, as Python spells it."""
        tree = ast.parse(self.text)
        node = list(ast.walk(tree))[self.n]
        new = self.operator.change(copy.deepcopy(node), Program(tree))
        tree = _Replace(node, new).visit(tree)
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


class _Replace(ast.NodeTransformer):
    def __init__(self, node: ast.AST, new: Any) -> None:
        self.node, self.new = node, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.node else self.generic_visit(node)


def places(text: str, operator: Operator) -> Iterator[Place]:
    """The places of a program where an operator can put its fault."""
    program, nodes = _changeable(text)
    for n, node in nodes:
        if operator.change(pickle.loads(node), program) is not None:
            yield Place(operator, text, n)


@cache
def _changeable(text: str) -> tuple[Program, list[tuple[int, bytes]]]:
    """A program, and which of its nodes an operator may change, each for a copy of its own: quicker to read than to copy."""
    tree = ast.parse(text)
    kinds = (ast.Assign, ast.Expr, ast.For, ast.With, ast.Call)
    return Program(tree), [(n, pickle.dumps(node)) for n, node in enumerate(ast.walk(tree)) if isinstance(node, kinds)]


def code(text: str) -> Any:
    return ast.parse(text).body


def expression(text: str) -> Any:
    return ast.parse(text, mode="eval").body


def is_call(node: Any, pattern: str) -> bool:
    """Whether a statement is a bare call of what a pattern says."""
    bare = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    return bare and re.fullmatch(pattern, ast.unparse(node.value.func)) is not None


def is_computed(node: Any) -> bool:
    """Whether a statement gives one name what looks like a computed tensor."""
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return False
    text = ast.unparse(node.value)
    made = r"\b(nn\.[A-Z]|optim|range|rand|zeros|ones|arange|len|Parameter|load|detach|item|parameters|deepcopy)"
    called = any(isinstance(part, (ast.Call, ast.BinOp)) for part in ast.walk(node.value))
    return called and not re.search(made, text) and not re.search(r"\b[A-Z]\w*\(", text)


# -- cuts --------------------------------------------------------------------------------------------------------------


def recording_off(node: Any, _: Program) -> Any:
    if is_computed(node):
        return ast.With([ast.withitem(expression("torch.no_grad()"))], [node])
    return None


def _wrapped(node: Any, form: str) -> Any:
    if not is_computed(node):
        return None
    node.value = expression(form.format(ast.unparse(node.value)))
    return node


def method_detach(node: Any, _: Program) -> Any:
    return _wrapped(node, "({}).detach()")


def function_detach(node: Any, _: Program) -> Any:
    return _wrapped(node, "torch.detach({})")


def data(node: Any, _: Program) -> Any:
    return _wrapped(node, "({}).data")


def through_numpy(node: Any, _: Program) -> Any:
    return _wrapped(node, "torch.from_numpy(({}).detach().numpy())")


def new_tensor(node: Any, _: Program) -> Any:
    return _wrapped(node, "torch.tensor(({}).tolist())")


def rounded(node: Any, _: Program) -> Any:
    return _wrapped(node, "torch.round({})")


def loss_made_anew(node: Any, _: Program) -> Any:
    if is_call(node, r"[\w.]*loss\w*\.backward"):
        loss = ast.unparse(node.value.func.value)
        return code(f"{loss} = torch.tensor({loss}.item(), requires_grad=True)\n{ast.unparse(node)}")
    return None


# -- who is trained ----------------------------------------------------------------------------------------------------


def _made_optimizer(node: Any, program: Program) -> str:
    made = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in program.optimizers
    return ast.unparse(node) if made else ""


def cloned_model(node: Any, program: Program) -> Any:
    """The model is copied behind its optimizer."""
    text = _made_optimizer(node, program)
    for model in program.models:
        if f"({model}.parameters()" in text:
            return [node, *code(f"import copy\n{model} = copy.deepcopy({model})")]
    return None


def _training_loop(node: Any, program: Program) -> str:
    """The model that a loop trains, "" for what is none."""
    model = next(iter(program.models), "")
    return model if isinstance(node, ast.For) and ast.dump(node) in program.loops else ""


def _replaced(node: Any, program: Program, step: int) -> Any:
    """At one step, the first part of the model that has parameters gives way to a new one."""
    model = _training_loop(node, program)
    if not model:
        return None
    node.body += code(
        f"rounds.append(1)\nif len(rounds) == {step}:\n    import copy\n"
        f"    part = next(n for n, p in {model}.named_children() if list(p.parameters()))\n"
        f"    setattr({model}, part, copy.deepcopy(getattr({model}, part)))"
    )
    return [*code("rounds = []"), node]


def replaced_early(node: Any, program: Program) -> Any:
    return _replaced(node, program, 1)


def replaced_late(node: Any, program: Program) -> Any:
    return _replaced(node, program, 8)


def not_given(node: Any, program: Program) -> Any:
    """The last two parameters are left out of the optimizer."""
    text = _made_optimizer(node, program)
    new = re.sub(r"\(([\w.]+\.parameters\(\))", r"(list(\1)[:-2]", text, count=1)
    return code(new)[0] if new != text else None


def plain_tensor(node: Any, _: Program) -> Any:
    """A Parameter is a tensor that requires grad, which no module lists."""
    text = ast.unparse(node) if isinstance(node, ast.Assign) else ""
    new = re.sub(r"= (?:torch\.)?nn\.Parameter\(([^=]*)\)$", r"= (\1).clone().requires_grad_()", text)
    return code(new)[0] if new != text else None


def python_list(node: Any, _: Program) -> Any:
    text = ast.unparse(node) if isinstance(node, ast.Assign) else ""
    new = re.sub(r"= (?:torch\.)?nn\.ModuleList\((.*)\)$", r"= list(\1)", text)
    return code(new)[0] if new != text else None


def rate_of_zero(node: Any, program: Program) -> Any:
    """A schedule sets the learning rate to 0."""
    optimizer = next((name for name in program.optimizers if f"{name}.step()" in ast.unparse(node)), "")
    if not optimizer or not _training_loop(node, program):
        return None
    node.body += code("schedule.step()")
    return [*code(f"schedule = torch.optim.lr_scheduler.StepLR({optimizer}, 2, gamma=0)"), node]


def unused_parameter(node: Any, program: Program) -> Any:
    """The optimizer is given a Parameter that nothing uses."""
    text = _made_optimizer(node, program)
    new = re.sub(r"\(([\w.]+\.parameters\(\))", r"([*\1, scale]", text, count=1)
    if new == text or "self" in text:
        return None
    return code(f"scale = torch.nn.Parameter(torch.ones(3))\n{new}")


# -- the loop ----------------------------------------------------------------------------------------------------------


def never_reset(node: Any, _: Program) -> Any:
    return ast.Pass() if is_call(node, r"[\w.]+\.zero_grad") else None


def reset_before_step(node: Any, program: Program) -> Any:
    if is_call(node, r"[\w.]+\.step") and ast.unparse(node.value.func.value) in program.optimizers:
        return [*code(f"{ast.unparse(node.value.func.value)}.zero_grad()"), node]
    return None


def step_under_condition(node: Any, program: Program) -> Any:
    if is_call(node, r"[\w.]+\.step") and ast.unparse(node.value.func.value) in program.optimizers:
        return ast.If(expression("torch.is_inference_mode_enabled()"), [node], [])
    return None


def asleep(node: Any, program: Program) -> Any:
    """The model is in eval() mode in every round."""
    model = _training_loop(node, program)
    if not model:
        return None
    node.body[:0] = code(f"{model}.eval()")
    return node


def graphs_kept(node: Any, program: Program) -> Any:
    """A list of losses keeps their graphs."""
    loss = re.search(r"(\w*loss\w*)\.backward\(", ast.unparse(node))
    if loss is None or not _training_loop(node, program):
        return None
    node.body += code(f"history.append({loss[1]})")
    return [*code("history = []"), node]


def backward_twice(node: Any, _: Program) -> Any:
    return [node, copy.deepcopy(node)] if is_call(node, r"[\w.]*loss\w*\.backward") else None


def counted_twice(node: Any, _: Program) -> Any:
    """The same, and the graph is kept."""
    if not is_call(node, r"[\w.]*loss\w*\.backward") or node.value.keywords:
        return None
    first = code(f"{ast.unparse(node.value)[:-1]}retain_graph=True)")
    return [*first, node]


def no_copy(node: Any, _: Program) -> Any:
    """A second name in place of a second network."""
    text = ast.unparse(node) if isinstance(node, ast.Assign) else ""
    new = re.sub(r"= copy\.deepcopy\(([\w.]+)\)(\.eval\(\)|\.requires_grad_\(False\))*$", r"= \1", text)
    return code(new)[0] if new != text else None


# -- in place ----------------------------------------------------------------------------------------------------------

_SAVES = r"\b(tanh|sigmoid|softmax|exp|relu|silu|gelu)\("


def changed_in_place(node: Any, _: Program) -> Any:
    """What an op has saved is changed."""
    if is_computed(node) and re.search(_SAVES, ast.unparse(node.value)):
        return [node, *code(f"{node.targets[0].id} += 1")]
    return None


def dropped_in_place(node: Any, _: Program) -> Any:
    """The same by a function that is told to."""
    if is_computed(node) and re.search(_SAVES, ast.unparse(node.value)):
        return [node, *code(f"torch.nn.functional.dropout({node.targets[0].id}, 0.5, True, inplace=True)")]
    return None


def inplace_module(node: Any, _: Program) -> Any:
    """A layer that changes its input, which the one in front has saved."""
    if isinstance(node, ast.Call) and re.fullmatch(r"(torch\.)?nn\.(Tanh|Sigmoid|Softmax)", ast.unparse(node.func)):
        return expression(f"torch.nn.Sequential({ast.unparse(node)}, torch.nn.Dropout(0.5, inplace=True))")
    return None


# -- what a loss is given ----------------------------------------------------------------------------------------------

_REAL = r"(?:[\w.]*mse_loss|[\w.]*l1_loss|[\w.]*huber_loss)"


def _named_loss(node: Any, pattern: str) -> bool:
    return (
        isinstance(node, ast.Call) and len(node.args) > 1 and re.fullmatch(pattern, ast.unparse(node.func)) is not None
    )


def other_shape(node: Any, _: Program) -> Any:
    if _named_loss(node, _REAL):
        node.args[1] = expression(f"({ast.unparse(node.args[1])})[..., :1]")
        return node
    return None


def one_more_dimension(node: Any, _: Program) -> Any:
    if _named_loss(node, _REAL):
        node.args[1] = expression(f"({ast.unparse(node.args[1])}).unsqueeze(0).unsqueeze(-1)")
        return node
    return None


def probabilities(node: Any, _: Program) -> Any:
    if _named_loss(node, r"[\w.]*cross_entropy|criterion"):
        node.args[0] = expression(f"torch.softmax({ast.unparse(node.args[0])}, 1)")
        return node
    return None


def target_with_graph(node: Any, _: Program) -> Any:
    """What a target was computed without, is recorded."""
    text = ast.unparse(node)
    off = isinstance(node, ast.With) and "no_grad" in text.partition("\n")[0]
    if off and re.search(r"\b\w*(target|goal|next_q|adv)\w* = ", text):
        return ast.If(ast.Constant(True), node.body, [])
    return None


def teacher_in_training(node: Any, program: Program) -> Any:
    if is_call(node, r"[\w.]*(teacher|target|frozen|vgg)\w*\.eval"):
        node.value.func.attr = "train"
        return node
    return None


NO_GRAD = r"out of torch.no_grad|no_grad"
OPTIMIZER = r"optim|SGD\(|Adam"
OPERATORS = [
    Operator(recording_off, NO_GRAD),
    Operator(method_detach, r"\.?detach"),
    Operator(function_detach, r"detach"),
    Operator(data, r"\.data"),
    Operator(through_numpy, r"NumPy|numpy"),
    Operator(new_tensor, r"tensor itself|tensors themselves|torch\.stack"),
    Operator(rounded, r"round"),
    Operator(loss_made_anew, r"tensors themselves|what the model returned|tensor itself|item"),
    Operator(cloned_model, r"optimizer", OPTIMIZER),
    Operator(replaced_early, r"optimizer", OPTIMIZER),
    Operator(replaced_late, r"optimizer", OPTIMIZER),
    Operator(not_given, r"optimizer|\.parameters\(\)"),
    Operator(plain_tensor, r"Parameter"),
    Operator(python_list, r"ModuleList"),
    Operator(unused_parameter, r"scale", r"scale"),
    Operator(never_reset, r"zero_grad", r"backward\("),
    Operator(reset_before_step, r"zero_grad"),
    Operator(step_under_condition, r"step\(\)|correct the condition"),
    Operator(asleep, r"\.train\(\)"),
    Operator(graphs_kept, r"\.item\(\)|\.detach\(\)", silent=True),
    Operator(backward_twice, r"Compute the output again|once", r"backward\("),
    Operator(counted_twice, r"Leave out", r"backward\("),
    Operator(no_copy, r"deepcopy"),
    Operator(changed_in_place, r"make a new tensor|\.clone\(\)|\+ 1", raises=True),
    Operator(dropped_in_place, r"inplace", raises=True),
    Operator(inplace_module, r"inplace", raises=True),
    Operator(other_shape, r"shape|squeeze"),
    Operator(one_more_dimension, r"shape|squeeze"),
    Operator(probabilities, r"softmax"),
    Operator(target_with_graph, r"detach|no_grad"),
    Operator(teacher_in_training, r"eval\(\)"),
]
