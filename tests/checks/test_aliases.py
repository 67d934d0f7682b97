"""Copies that are none: models with two names, states that move along, averages that are the model; and copies that are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

FAULTS = {
    "a slow copy that is the model": Fault(
        "alias",
        "target = online",
        "target = copy.deepcopy(online)",
        "target = online",
        "target = copy.deepcopy(online).requires_grad_(False)",
        """
        import copy, torch
        online = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        target = online
        opt = torch.optim.Adam(online.parameters())
        def follow():
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), online.parameters()):
                    slow.lerp_(fast.detach(), 0.01)
        for _ in range(4):
            with torch.no_grad():
                wanted = 1 + 0.9 * target(torch.randn(8, 3)).amax(1)
            opt.zero_grad()
            torch.nn.functional.mse_loss(online(torch.randn(8, 3))[:, 0], wanted).backward()
            opt.step()
            follow()
        """,
    ),
    "a target among the parts of a model": Fault(
        "alias",
        "self.slow = self.body",
        "self.slow = copy.deepcopy(self.body)",
        "self.slow = self.body",
        "self.slow = copy.deepcopy(self.body)",
        """
        import copy, torch
        class Agent:
            def __init__(self):
                self.body = torch.nn.Linear(3, 2)
                self.slow = self.body
            def sync(self):
                self.slow.load_state_dict(self.body.state_dict())
        agent = Agent()
        opt = torch.optim.SGD(agent.body.parameters(), lr=0.01)
        for step in range(4):
            with torch.no_grad():
                wanted = 1 + 0.9 * agent.slow(torch.randn(8, 3))
            loss = (agent.body(torch.randn(8, 3)) - wanted).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "an average that is computed of itself": Fault(
        "alias",
        "average = net",
        "average = copy.deepcopy(net)",
        "average = net",
        "average = copy.deepcopy(net)",
        """
        import copy, torch
        net = torch.nn.Linear(3, 1)
        average = net
        def follow(slow, fast, kept=0.99):
            for old, new in zip(slow.parameters(), fast.parameters()):
                old.data.copy_(kept * old.data + (1 - kept) * new.data)
        LOOP
            follow(average, net)
        """,
    ),
    "the best state": Fault(
        "alias",
        "best = net.state_dict()",
        "put copy.deepcopy(...) around state_dict()",
        "best = net.state_dict()",
        "best = copy.deepcopy(net.state_dict())",
        """
        import copy, torch
        net = torch.nn.Linear(3, 1)
        least = 1e9
        LOOP
            if loss.item() < least:
                least = loss.item()
                best = net.state_dict()
        loss = (net(torch.randn(8, 3)) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        net.load_state_dict(best)
        """,
    ),
    "a state to compare with": Fault(
        "alias",
        "before = net.state_dict()",
        "put copy.deepcopy(...) around state_dict()",
        "before = net.state_dict()",
        "before = copy.deepcopy(net.state_dict())",
        """
        import copy, torch
        net = torch.nn.Linear(3, 1)
        before = net.state_dict()
        LOOP
            after = net.state_dict()
            far = sum((after[name] - before[name]).norm() for name in before)
        """,
    ),
    "outer steps from where the inner ones began": Fault(
        "alias",
        "start = net.state_dict()",
        "put copy.deepcopy(...) around state_dict()",
        "start = net.state_dict()",
        "start = copy.deepcopy(net.state_dict())",
        """
        import copy, torch
        net = torch.nn.Linear(3, 1)
        for task in range(4):
            start = net.state_dict()
            for step in range(3):
                net.zero_grad()
                (net(torch.randn(8, 3)) - task).square().mean().backward()
                for p in net.parameters():
                    p.data -= 0.1 * p.grad.data
            end = net.state_dict()
            net.load_state_dict({name: start[name] + 0.5 * (end[name] - start[name]) for name in start})
        """,
    ),
}
RIGHT = {
    "two names, of which nothing is to follow the other": """
        import torch
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(3, 3)
                self.second = self.first
            def forward(self, x):
                return self.second(self.first(x).relu()).mean(1)
        net = Model()
        LOOP
        """,
    "a target that is asked for or not": """
        import copy, torch
        with_target = False
        net = torch.nn.Linear(3, 1)
        target = copy.deepcopy(net) if with_target else net
        LOOP
            if with_target:
                for slow, fast in zip(target.parameters(), net.parameters()):
                    slow.data.lerp_(fast.data, 0.01)
        """,
    "a state to look up names and shapes": """
        import torch
        net = torch.nn.Linear(3, 1)
        state = net.state_dict()
        wanted = {name: torch.zeros(value.shape) for name, value in state.items()}
        LOOP
        state.update(wanted)
        net.load_state_dict(state)
        """,
    "states that are saved at once": """
        import io, torch
        net = torch.nn.Linear(3, 1)
        LOOP
            state = net.state_dict()
            file = io.BytesIO()
            torch.save(state, file)
        file.seek(0)
        net.load_state_dict(torch.load(file))
        """,
    "weights that are drawn to where they began": """
        import torch
        net = torch.nn.Linear(3, 1)
        first = [p.detach().clone() for p in net.parameters()]
        LOOP
            for p, anchor in zip(net.parameters(), first):
                p.data.mul_(0.9).add_(anchor, alpha=0.1)
                p.data.copy_(0.9 * p.data + 0.1 * anchor)
        """,
    "an average that warms up": """
        import torch
        net = torch.nn.Linear(3, 1)
        slow = [p.detach().clone() for p in net.parameters()]
        LOOP
            kept = min(0.99, (1 + step) / (10 + step))
            slow = [kept * one + (1 - kept) * p.detach() for one, p in zip(slow, net.parameters())]
        """,
    "weights that are tied, and compared": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        net[1].weight = net[0].weight
        LOOP
            state = net.state_dict()
            assert torch.equal(state["0.weight"], state["1.weight"])
        """,
}
LOOP = """
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(5):
            loss = (net(torch.randn(8, 3)) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()""".lstrip()


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    shows_and_heals(fault._replace(script=fault.script.replace("LOOP", LOOP)), tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_a_copy_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name].replace("LOOP", LOOP), tmp_path)
