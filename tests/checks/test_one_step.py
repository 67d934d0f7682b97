"""Several backward calls that belong to one step: what they share is no history, and what grows over steps of theirs is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.test_steps import found_in

RIGHT = {
    "two losses of one trunk, each differentiated for a surgery on gradients": """
        heads = [torch.nn.Linear(1, 1).requires_grad_(False) for _ in range(4)]
        for step in range(3):
            h = model(data).tanh()
            losses = [head(h).square().mean() for head in heads]
            parts = [torch.autograd.grad(one, list(model.parameters()), retain_graph=True) for one in losses]
            optimizer.zero_grad()
            sum(losses).backward()
            for j, one in enumerate(model.parameters()):
                one.grad = sum(part[j] for part in parts)
            optimizer.step()
        """,
    "three losses, one after the other": """
        for step in range(3):
            optimizer.zero_grad()
            h = model(data)
            total = 0.0
            for power in (1, 2, 3):
                loss = h.pow(power).sum()
                loss.backward(retain_graph=power < 3)
                total = total + loss
            optimizer.step()
        """,
    "inner steps whose gradients are constants": """
        from torch.func import functional_call
        for step in range(3):
            fast = dict(model.named_parameters())
            for inner in range(4):
                loss = functional_call(model, fast, (data,)).square().sum()
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=False)
                fast = {name: one - 0.01 * g for (name, one), g in zip(fast.items(), grads)}
            optimizer.zero_grad()
            functional_call(model, fast, (data,)).sum().backward()
            optimizer.step()
        """,
    "updates by hand, with two losses each": """
        w = torch.ones(3, requires_grad=True)
        for step in range(3):
            h, total = (w * data).sigmoid(), 0.0
            for power in (1, 2, 3, 4):
                loss = h.pow(power).sum()
                loss.backward(retain_graph=True)
                total = total + loss
            with torch.no_grad():
                w -= 0.1 * w.grad
            w.grad = None
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("calls", ["3", "12"])
@pytest.mark.parametrize("name", [name for name in RIGHT if "by hand" not in name])
def test_a_step_of_several_calls_does_not_grow(name: str, calls: str, tmp_path: Path) -> None:
    assert not found_in(RIGHT[name], tmp_path, "--steps", calls)


def test_it_is_a_step_too_once_an_update_by_hand_was_seen(tmp_path: Path) -> None:
    text = RIGHT["updates by hand, with two losses each"]
    assert not found_in(text, tmp_path, "--steps", "8", "--at", "4")


def test_what_grows_over_steps_of_several_calls_is_found(tmp_path: Path) -> None:
    text = """
        losses = []
        for step in range(4):
            optimizer.zero_grad()
            for part in range(2):
                loss = model(data + part).square().mean() / 2
                loss.backward()
                losses.append(loss)
            optimizer.step()
        """
    (found,) = found_in(text, tmp_path, "--steps", "8")
    assert found["id"] == "growing-graph" and found["names"] == ["losses"]
    assert "store it without its graph: .detach()" in found["fix"]
    assert not found_in(text.replace("losses.append(loss)", "losses.append(loss.item())"), tmp_path, "--steps", "8")
