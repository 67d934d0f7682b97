"""Reads a region from the Python text that torch's cache on disk keeps of it. Parses only: nothing is imported or run.

What the text has is the operations, the names of the inputs and what is returned. Shapes, modules and lines are not in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from gradviz.compiled.region import (
    Input,
    InputKind,
    Operation,
    Region,
    Use,
)


def region_of(text: str, sizes: int) -> Region | None:
    """The region whose backward is written in `text`; its first `sizes` inputs are sizes. None for text of another form.

    >>> region = region_of('''
    ... def forward(self, relu, tangents_1):
    ...     neg = torch.ops.aten.neg.default(tangents_1);  tangents_1 = None
    ...     mul = torch.ops.aten.mul.Tensor(neg, relu);  neg = relu = None
    ...     return (mul, None)
    ... ''', 0)
    >>> [operation.op for operation in region.operations], region.gradients
    (['aten.neg.default', 'aten.mul.Tensor'], (Use(value=3, result=0), None))
    """
    try:
        functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return None
    return _Reader(sizes).region(functions[0]) if len(functions) == 1 else None


def input_kind(name: str, number: int, sizes: int) -> InputKind:
    """What an input is, by its place and by the name that the partitioner of torch itself goes by."""
    if number < sizes:
        return "size"
    if "tangents" in name:
        return "gradient"
    return "other" if name.startswith(("bwd_seed", "bwd_base_offset", "bwd_rng_state", "fwd_rng_state")) else "saved"


class _Reader:
    def __init__(self, sizes: int) -> None:
        self._sizes = sizes
        self._known: dict[str, Use] = {}

    def region(self, function: ast.FunctionDef) -> Region | None:
        names = [argument.arg for argument in function.args.args[1:]]
        inputs = tuple([Input(name, input_kind(name, i, self._sizes)) for i, name in enumerate(names)])
        self._known = {name: Use(i) for i, name in enumerate(names)}
        operations: list[Operation] = []
        for statement in function.body:
            if isinstance(statement, ast.Return):
                return Region(inputs, tuple(operations), self._returned(statement.value), described=False)
            if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
                self._assign(statement, statement.value, operations, len(inputs))
        return None

    def _assign(
        self, statement: ast.Assign | ast.AnnAssign, value: ast.expr, operations: list[Operation], first: int
    ) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        name = targets[0].id if isinstance(targets[0], ast.Name) else ""
        if isinstance(value, ast.Constant):  # `x = None` lets go of x
            return
        if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            whole, index = self._known.get(value.value.id), value.slice
            if whole is not None and isinstance(index, ast.Constant) and type(index.value) is int:
                self._known[name] = Use(whole.value, index.value)
            return
        if isinstance(value, ast.Call) and "'sym_" not in ast.dump(value.func):
            op = _dotted(value.func).removeprefix("torch.ops.")
            self._known[name] = Use(first + len(operations))
            operations.append(Operation(name, op, tuple(self._read(value))))

    def _read(self, call: ast.Call) -> Iterator[Use]:
        for argument in [*call.args, *(keyword.value for keyword in call.keywords)]:
            for node in ast.walk(argument):
                if isinstance(node, ast.Name) and node.id in self._known:
                    use = self._known[node.id]
                    if use.value >= self._sizes:
                        yield use

    def _returned(self, value: ast.expr | None) -> tuple[Use | None, ...]:
        items = value.elts if isinstance(value, (ast.Tuple, ast.List)) else [value] if value is not None else []
        return tuple([self._known.get(item.id) if isinstance(item, ast.Name) else None for item in items])


def _dotted(expression: ast.expr) -> str:
    parts: list[str] = []
    while isinstance(expression, ast.Attribute):
        parts.append(expression.attr)
        expression = expression.value
    if isinstance(expression, ast.Name):
        parts.append(expression.id)
    return ".".join(reversed(parts))
