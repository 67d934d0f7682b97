"""Assertions about the graph of a tensor, for tests with or without pytest.

    from gradviz.testing import assert_all_get_gradients
    assert_all_get_gradients(loss, net)

Owns what they say when they fail. The pytest plugin is `gradviz.testing.plugin`.
Nothing of torch is imported before one is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradviz.wording import bytes_text, few, parse_size, plural

if TYPE_CHECKING:
    import torch

__all__ = ["assert_all_get_gradients", "assert_no_findings", "assert_saved_at_most"]


def assert_no_findings(
    outputs: object, *, model: torch.nn.Module | None = None
) -> None:
    """Fail with the report of `gradviz.check` if it has an error or a warning.

    Parameters
    ----------
    outputs
        a tensor with a graph, or any nesting of tensors, before its backward
        call.
    model
        the module that made it.

    Raises
    ------
    AssertionError
        there is an error or a warning. Notes do not fail.
    """
    __tracebackhide__ = True
    from gradviz.checks.check import check

    findings = check(outputs, model=model)
    if findings.reach("warning"):
        raise AssertionError(f"gradviz found something\n\n{findings}")


def assert_saved_at_most(outputs: object, limit: int | str) -> None:
    """Fail if the graph of `outputs` holds more bytes for backward than `limit`: a
    number of bytes, or "2 GiB".

    Parameters and buffers are not counted, nor what a hook packed into something of
    unknown size.

    Raises
    ------
    AssertionError
        it holds more; the message has the table of `gradviz.saved`. Or
        backward() has freed it already.
    ValueError
        `limit` is no size.
    """
    __tracebackhide__ = True
    from gradviz.api import walk
    from gradviz.memory.saved import saved

    most = parse_size(str(limit))
    # parse_size() would take 1.5 for 1 byte
    if most is None or (not isinstance(limit, str) and most != limit):
        raise ValueError(
            f"{limit!r} is no size: write a whole number of bytes, or one with a unit, as '2 GiB'"
        )
    table = saved(walk(outputs))
    # a freed graph holds nothing, so every limit would pass
    if table.totals.freed_slots:
        raise AssertionError(
            "backward() has freed what this graph kept: call assert_saved_at_most before it"
        )
    held = table.total.held
    if held > most:
        message = f"the graph keeps {bytes_text(held)} for backward, {bytes_text(held - most)} more than {bytes_text(most)}"
        raise AssertionError(f"{message}\n\n{table}")


def assert_all_get_gradients(outputs: object, model: torch.nn.Module) -> None:
    """Fail if the graph of `outputs` does not lead to a parameter of `model` that
    requires a gradient.

    A parameter that only a reentrant checkpoint uses is not in the graph, and fails,
    too.

    Raises
    ------
    AssertionError
        the graph does not lead to some; the message names them.
        `gradviz.why` says why.
    """
    __tracebackhide__ = True
    from gradviz.walker.walk import capture

    walked = capture(outputs, saved=False)
    reached = set(map(id, walked.variables.values()))
    named = model.named_parameters()
    wanted = {name: id(tensor) for name, tensor in named if tensor.requires_grad}
    missing = [name for name, tensor in wanted.items() if tensor not in reached]
    if missing:
        message = f"no gradient reaches {len(missing)} of {plural(len(wanted), 'parameter')}: {few(missing)}"
        raise AssertionError(f"{message}\ngradviz.why(outputs, parameter) says why")
