"""Minus infinity is how masks and sums of probabilities write the logarithm of zero: alone it is no finding."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_scripts import check, written
from tests.walker.graphs import needs_raw

RIGHT = {
    "mask of an attention": """
    import torch
    q = torch.randn(2, 2, 5, 4, requires_grad=True)
    mask = torch.full((5, 5), float("-inf")).triu(1)
    torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
    """,
    "masked scores": """
    import torch
    q = torch.randn(2, 5, 4, requires_grad=True)
    scores = q @ q.transpose(1, 2) + torch.full((5, 5), float("-inf")).triu(1)
    (torch.logsumexp(scores, -1).sum() + (scores.softmax(-1) @ q).sum()).backward()
    """,
    "forward algorithm in log space": """
    import torch
    t = torch.randn(3, 3, requires_grad=True)
    alpha = torch.tensor([0.0, -float("inf"), -float("inf")])
    for turn in range(3):
        alpha = torch.logsumexp(alpha[:, None] + t.log_softmax(-1), 0)
    (-alpha.logsumexp(0)).backward()
    """,
    "connectionist temporal classification": """
    import torch
    x = torch.randn(10, 2, 5, requires_grad=True)
    torch.nn.functional.ctc_loss(x.log_softmax(-1), torch.ones(2, 3, dtype=torch.long), [10, 10], [3, 3]).backward()
    """,
}
WRONG = {
    "an output": (
        "LogBackward0 makes",  # although the result of log itself is not held
        """
    import torch
    x = torch.zeros(3, requires_grad=True)
    x.log().sum().backward()
    """,
    ),
    "a gradient": (
        "becomes NaN or Inf in log",
        """
    import torch
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    torch.exp(x.log()).sum().backward()
    """,
    ),
    "a value that is none, in a model with a mask": (
        "SqrtBackward0",
        """
    import torch
    q = torch.randn(2, 5, 4, requires_grad=True)
    scores = q @ q.transpose(1, 2) + torch.full((5, 5), float("-inf")).triu(1)
    y = (scores.softmax(-1) @ q).sum()
    (torch.sqrt(y - y.detach() - 1) * 2).exp().backward()
    """,
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_alone_it_is_no_finding(name: str, tmp_path: Path) -> None:
    found, code = check(written(tmp_path, RIGHT[name]), "--values", "--only", "nonfinite")
    assert (found, code) == ([], 0)


@pytest.mark.parametrize("name", WRONG)
@needs_raw
def test_it_counts_when_it_reaches(name: str, tmp_path: Path) -> None:
    """And the mask is never blamed."""
    blamed, text = WRONG[name]
    found, code = check(written(tmp_path, text), "--values", "--only", "nonfinite")
    assert code == 1 and [one["id"] for one in found] == ["nonfinite"]
    assert blamed in found[0]["summary"]
