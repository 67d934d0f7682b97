"""Calls and settings without an effect, or with one more each time: found at their line, healed by the advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

FAULTS = {
    "a warmup that sets an attribute": Fault(
        "no-effect",
        "optimizer.lr = rate",
        "for group in optimizer.param_groups: group['lr'] = ...",
        "optimizer.lr = rate",
        "[group.update(lr=rate) for group in optimizer.param_groups]",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        def warm_up(step, most=1e-3, steps=3):
            rate = most * min(1.0, (step + 1) / steps)
            optimizer.lr = rate
        for step in range(4):
            warm_up(step)
            loss = torch.nn.functional.huber_loss(net(torch.randn(8, 3)), torch.randn(8, 1))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        """,
    ),
    "a misspelt setting of a group": Fault(
        "no-effect",
        "opt = torch.optim.SGD(groups, lr=0.1)",
        "Call it weight_decay in",
        "weigth_decay",
        "weight_decay",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        groups = [{"params": net[0].parameters(), "weigth_decay": 0.01}, {"params": net[2].parameters(), "lr": 0.01}]
        opt = torch.optim.SGD(groups, lr=0.1)
        for step in range(3):
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
        """,
    ),
    "a checkpoint of a wrapped model": Fault(
        "no-effect",
        "return self.backbone.load_state_dict(state, strict=False)",
        "so that model.0.weight becomes 0.weight",
        "load_state_dict(state",
        "load_state_dict({key.removeprefix('model.'): value for key, value in state.items()}",
        """
        import torch
        class Finetune(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.backbone = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
                self.head = torch.nn.Linear(4, 1)
            def forward(self, x):
                return self.head(self.backbone(x))
            def restore(self, state):
                return self.backbone.load_state_dict(state, strict=False)
        old = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
        net = Finetune()
        net.restore({f"model.{key}": value for key, value in old.state_dict().items()})
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
        """,
    ),
    "a method as a hook, once more in each epoch": Fault(
        "pile-of-hooks",
        "self.net[1].register_forward_pre_hook(self.count)",
        "in front of the loop",
        "        self.net[1].register_forward_pre_hook(self.count)\n",
        "        epoch or self.net[1].register_forward_pre_hook(self.count)\n",
        """
        import torch
        class Trainer:
            def __init__(self):
                self.net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
                self.opt, self.calls = torch.optim.SGD(self.net.parameters(), lr=0.1), 0
            def count(self, module, given):
                self.calls += 1
            def epoch(self, epoch):
                self.net[1].register_forward_pre_hook(self.count)
                for _ in range(2):
                    self.opt.zero_grad()
                    self.net(torch.randn(8, 3)).square().mean().backward()
                    self.opt.step()
        trainer = Trainer()
        for epoch in range(4):
            trainer.epoch(epoch)
        """,
    ),
}
RIGHT = {
    "groups with names and settings of their own, and a part of a state": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        opt = torch.optim.AdamW([{"params": net.parameters(), "name": "all", "lr_scale": 0.5, "layer": 1}], lr=1e-3)
        opt.epoch, opt.best = 0, 1e9
        schedule = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.01, total_steps=8)
        net.load_state_dict({"0.weight": torch.zeros(4, 3) + 0.1, "other": torch.ones(1)}, strict=False)
        net.load_state_dict({}, strict=False)
        for step in range(4):
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
            schedule.step()
    """,
    "one hook for each layer, in a pass that removes them": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        opt, seen = torch.optim.SGD(net.parameters(), lr=0.1), []
        def watched(x):
            handles = [layer.register_forward_hook(lambda *given: seen.append(given[-1].mean().item())) for layer in net]
            y = net(x)
            for handle in handles:
                handle.remove()
            return y
        for step in range(4):
            opt.zero_grad()
            watched(torch.randn(8, 3)).square().mean().backward()
            opt.step()
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    shows_and_heals(FAULTS[name], tmp_path)


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
