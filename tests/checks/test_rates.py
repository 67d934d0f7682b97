"""The pace of a training run: schedules without effect, steps of a wrong size, averages that do not average."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals

LOOP = """
        import copy
        import torch
        torch.manual_seed(0)
        x = torch.randn(96, 8)
        y = x[:, :2].sum(1, keepdim=True) + 0.1 * torch.randn(96, 1)
        net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        BEFORE
        for epoch in range(6):
            for part in torch.randperm(96).split(24):
                opt.zero_grad()
                loss = (net(x[part]) - y[part]).square().mean()
                loss.backward()
                CLIP
                opt.step()
                STEP
            EPOCH
"""


def loop(before: str, step: str = "pass", epoch: str = "pass", clip: str = "pass") -> str:
    """A training loop with these lines in it."""
    parts = {"BEFORE": (before, 8), "CLIP": (clip, 16), "STEP": (step, 16), "EPOCH": (epoch, 12)}
    text = LOOP
    for name, (lines, indent) in parts.items():
        text = text.replace(name, lines.replace("\n", "\n" + " " * indent))
    return text


SGD, ADAM = "opt = torch.optim.SGD(net.parameters(), lr=0.05)", "opt = torch.optim.Adam(net.parameters(), lr=0.01)"
COSINE = "\nschedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)"
STAGES = "\nschedule = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[1, 3], gamma=0.5)"
SWITCH = "if epoch == 2:\n    opt = torch.optim.SGD(net.parameters(), lr=0.02)MORE\nschedule.step()"
FOLLOWER = "\nslow = copy.deepcopy(net).requires_grad_(False)"
FOLLOW = "with torch.no_grad():\n    for target, source in zip(slow.parameters(), net.parameters()):\n        "
RESTORE = "first = net\nif epoch == 2:\n    net = copy.deepcopy(net)"
FAULTS = {
    "a scheduler that is never asked": Fault(
        "idle-schedule",
        "schedule = ",
        "Call its step() at the end of each epoch",
        "    pass\n    pass\n",
        "    pass\n    schedule.step()\n",
        loop(SGD + COSINE, step="pass", epoch="pass"),
    ),
    "a scheduler of an optimizer that was replaced": Fault(
        "idle-schedule",
        "schedule.step()",
        "Make a new scheduler for opt",
        "lr=0.02)\n",
        "lr=0.02)\n        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)\n",
        loop(SGD + COSINE, epoch=SWITCH.replace("MORE", "")),
    ),
    "a cosine of epochs that every batch moves on": Fault(
        "idle-schedule",
        "schedule.step()",
        "call schedule.step() once in each epoch",
        "        schedule.step()\n",
        "        pass\n    schedule.step()\n",
        loop(ADAM + COSINE, step="schedule.step()"),
    ),
    "milestones of epochs that every batch moves on": Fault(
        "idle-schedule",
        "schedule.step()",
        "call schedule.step() once in each",
        "        schedule.step()\n",
        "        pass\n    schedule.step()\n",
        loop(ADAM + STAGES, step="schedule.step()"),
    ),
    "a schedule that each epoch begins anew": Fault(
        "idle-schedule",
        "schedule = ",
        "Make it once, before the loop",
        "    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=6)\n    schedule.step()",
        "    FIRST.step()",
        loop(ADAM + "\nFIRST = torch.optim.lr_scheduler.StepLR(opt, 2)", epoch=COSINE[1:] + "\nschedule.step()"),
    ),
    "batches that are used up after one epoch": Fault(
        "idle-schedule",
        "schedule.step()",
        "keep the batches in a list",
        "iter(x.split(24))",
        "x.split(24)",
        loop(ADAM + COSINE + "\nparts = iter(x.split(24))", epoch="schedule.step()")
        .replace("torch.randperm(96).split(24):", "parts:")
        .replace("(net(x[part]) - y[part])", "(net(part) - 1)"),
    ),
    "a cycle of steps that each epoch moves on": Fault(
        "idle-schedule",
        "schedule.step()",
        "Call schedule.step() after each step of the optimizer",
        "        pass\n    schedule.step()\n",
        "        schedule.step()\n    pass\n",
        loop(
            SGD + "\nschedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=24)", epoch="schedule.step()"
        ),
    ),
    "a warm-up of steps that each epoch moves on": Fault(
        "idle-schedule",
        "schedule.step()",
        "Call schedule.step() after each step of the optimizer",
        "        pass\n    schedule.step()\n",
        "        schedule.step()\n    pass\n",
        loop(
            SGD + "\nschedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda step: min(1.0, (step + 1) / 20))",
            epoch="schedule.step()",
        ),
    ),
    "a schedule of epochs that every batch moves on": Fault(
        "rate-near-zero",
        "schedule.step()",
        "If the schedule counts epochs, move schedule.step() out of the loop over the batches",
        "        schedule.step()\n",
        "        pass\n    schedule.step()\n",
        loop(SGD + "\nschedule = torch.optim.lr_scheduler.StepLR(opt, 1, gamma=0.4)", step="schedule.step()"),
    ),
    "a factor by hand that is rounded down": Fault(
        "idle-optimizer",
        "factor = min(1, (1 + epoch) // 10)",
        "/ in place of //",
        "(1 + epoch) // 10",
        "(1 + epoch) / 10",
        loop(
            SGD,
            clip="factor = min(1, (1 + epoch) // 10)\nfor group in opt.param_groups:\n    group['lr'] = 0.05 * factor",
        ),
    ),
    "a factor of several returns that is a rate": Fault(
        "rate-near-zero",
        "return 0.05 * (step + 1) / 8",
        "and where else the function returns, return a factor",
        "return 0.05 * (step + 1) / 8\n    return 0.05 * (24 - step) / 16",
        "return (step + 1) / 8\n    return (24 - step) / 16",
        loop(
            "def rate(step):\n    if step < 8:\n        return 0.05 * (step + 1) / 8\n    return 0.05 * (24 - step) / 16\n"
            + SGD
            + "\nschedule = torch.optim.lr_scheduler.LambdaLR(opt, rate)",
            step="schedule.step()",
        ),
    ),
    "a learning rate for another scale": Fault(
        "step-size", "lr=1e-9", "Raise the learning rate", "lr=1e-9", "lr=1e-2", loop(ADAM.replace("0.01", "1e-9"))
    ),
    "a learning rate that throws all weights away": Fault(
        "step-size", "lr=3.0", "Lower the learning rate", "lr=3.0", "lr=0.003", loop(ADAM.replace("0.01", "3.0"))
    ),
    "gradients that are clipped to nothing": Fault(
        "step-size",
        "clip_grad_norm_",
        "such as 1.0",
        "1e-6",
        "1.0",
        loop(SGD, clip="torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-6)"),
    ),
    "weight decay that leaves nothing": Fault(
        "step-size",
        "weight_decay=10",
        "Take less",
        "weight_decay=10",
        "weight_decay=0.01",
        loop("opt = torch.optim.AdamW(net.parameters(), lr=0.03, weight_decay=10)"),
    ),
    "an optimizer for each batch": Fault(
        "lost-averages",
        "opt = torch.optim.Adam(",
        "Make it once, before the loop",
        "        opt = torch.optim.Adam(net.parameters(), lr=0.01)\n",
        "",
        loop(ADAM.replace("Adam", "AdamW")).replace("opt.zero_grad()", ADAM + "\n                opt.zero_grad()"),
    ),
    "a copy in the place of the model that the optimizer holds": Fault(
        "idle-optimizer",
        "opt = torch.optim.SGD(",
        "model.load_state_dict(other.state_dict())",
        "net = copy.deepcopy(net)\n",
        "net.load_state_dict(copy.deepcopy(first.state_dict()))\n",
        loop(SGD, epoch=RESTORE),
    ),
    "an average that gives the variable of the loop a new value": Fault(
        "no-effect",
        "target = 0.9",
        "target.copy_(0.9 * target + 0.1 * source)",
        "target = 0.9 * target + 0.1 * source",
        "target.copy_(0.9 * target + 0.1 * source)",
        loop(ADAM + FOLLOWER, step=FOLLOW + "target = 0.9 * target + 0.1 * source"),
    ),
    "gradients that are only read are reset before each of several batches": Fault(
        "accumulation",
        "opt.zero_grad()",
        "directly behind opt.step()",
        "",
        "",
        """
        import torch
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        for i in range(16):
            opt.zero_grad()
            loss = (net(torch.randn(8, 4)) - 1).square().mean() / 4
            loss.backward()
            size = net.weight.grad.norm().item()
            if i % 4 == 3:
                opt.step()
        """,
    ),
}
RIGHT = {
    "one scheduler for each stage": loop(SGD + COSINE, epoch=SWITCH.replace("MORE", COSINE.replace("\n", "\n    "))),
    "a scheduler of several, and one that waits for a plateau": loop(
        SGD + "\nL = torch.optim.lr_scheduler\nschedule = L.SequentialLR(opt, [L.LinearLR(opt, 0.1, total_iters=3), "
        "L.CosineAnnealingLR(opt, 21)], [3])\nplateau = L.ReduceLROnPlateau(opt)",
        step="schedule.step()",
        epoch="plateau.step(loss.item())",
    ),
    "milestones of steps": loop(ADAM + STAGES.replace("[1, 3]", "[8, 16]"), step="schedule.step()"),
    "a short warm-up of steps": loop(
        ADAM + "\nschedule = torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=5)", step="schedule.step()"
    ),
    "a schedule for each of several cycles, which goes to its end": """
        import torch
        net = torch.nn.Linear(4, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.05)
        for cycle in range(4):
            for group in opt.param_groups:
                group["lr"] = group["initial_lr"] = 0.05
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=5)
            for epoch in range(5):
                opt.zero_grad()
                net(torch.randn(8, 4)).square().mean().backward()
                opt.step()
                schedule.step()
    """,
    "one schedule of three that goes on, and two for a part of the run": loop(
        SGD + "\nL = torch.optim.lr_scheduler\nfirst, last = (L.ConstantLR(opt, 0.5, total_iters=2) for _ in range(2))"
        "\nschedule = L.ExponentialLR(opt, 0.98)",
        epoch="schedule.step(); first.step() if epoch < 3 else last.step()",
    ),
    "a rate that swings": loop(
        ADAM + "\nschedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=4)", step="schedule.step()"
    ),
    "a warm-up of epochs, and a cosine of as many": loop(
        SGD + "\nL = torch.optim.lr_scheduler\nschedule = L.SequentialLR(opt, [L.LinearLR(opt, 0.1, total_iters=2), "
        "L.CosineAnnealingLR(opt, 4)], [2])",
        epoch="schedule.step()",
    ),
    "a cycle that ends later than a run of few epochs": loop(
        SGD + "\nschedule = torch.optim.lr_scheduler.OneCycleLR(opt, 0.05, total_steps=100)", step="schedule.step()"
    ),
    "an optimizer for each task": loop(ADAM, epoch=ADAM),
    "weights that begin at zero and take large steps": """
        import torch
        goal, image = torch.rand(3, 8, 8), torch.zeros(3, 8, 8, requires_grad=True)
        opt = torch.optim.Adam([image], lr=0.3)
        for step in range(30):
            opt.zero_grad()
            (image - goal).square().mean().backward()
            opt.step()
    """,
    "steps that end with the gradient": """
        import torch
        w = torch.tensor([5.0, 1.0], requires_grad=True)
        opt = torch.optim.SGD([w], lr=0.5)
        for step in range(60):
            opt.zero_grad()
            (w - torch.tensor([1.0, 2.0])).square().sum().backward()
            opt.step()
    """,
    "a copy in half precision for each step": loop(
        ADAM + FOLLOWER + ".bfloat16()", step=FOLLOW + "target.copy_(source)"
    ),
    "a target that is copied as a whole": loop(ADAM + FOLLOWER, step=FOLLOW + "target.data.copy_(source.data)"),
    "a frozen teacher": loop(ADAM + FOLLOWER, step="with torch.no_grad(): slow(x)"),
    "a loop whose variable is used below": """
        import torch
        net = torch.nn.Linear(4, 1)
        for step in range(3):
            net(torch.randn(8, 4)).square().mean().backward()
            for p in net.parameters():
                p = p - 0.1 * p.grad
                print(p.norm().item())
            for p in net.parameters():
                p.grad = None
    """,
}


@pytest.mark.parametrize("name", FAULTS)
def test_it_is_found_and_the_advice_heals(name: str, tmp_path: Path) -> None:
    fault = FAULTS[name]
    if fault.old:
        shows_and_heals(fault, tmp_path)
    else:
        assert [one["id"] for one in alarms(fault.script, tmp_path)] == [fault.id]


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_is_left_alone(name: str, tmp_path: Path) -> None:
    assert not alarms(RIGHT[name], tmp_path)
