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
        "call its remove() at the end of each round",
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
    "old chances that keep their graph": Fault(
        "cancelled-gradient",
        "return (torch.distributions.Categorical(logits=policy(x)).log_prob(taken) - before).exp()",
        "If it belongs to this step, detach it: x = x.detach()",
        "chosen.log_prob(taken)\n",
        "chosen.log_prob(taken).detach()\n",
        """
        import torch
        policy = torch.nn.Linear(3, 4)
        opt = torch.optim.SGD(policy.parameters(), lr=0.1)
        def ratio(x, taken, before):
            return (torch.distributions.Categorical(logits=policy(x)).log_prob(taken) - before).exp()
        for _ in range(4):
            x, gain = torch.randn(8, 3), torch.randn(8)
            chosen = torch.distributions.Categorical(logits=policy(x))
            taken = chosen.sample()
            before = chosen.log_prob(taken)
            opt.zero_grad()
            (-(ratio(x, taken, before) * gain).mean() + 0.1 * policy.weight.square().mean()).backward()
            opt.step()
        """,
    ),
}
FAULTS |= {
    "a hook on a weight, once more in each epoch": Fault(
        "pile-of-hooks",
        "net[2].weight.register_hook",
        "call its remove() at the end of each round",
        "    net[2].weight.register_hook",
        "    epoch or net[2].weight.register_hook",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for epoch in range(5):
            net[2].weight.register_hook(lambda gradient: gradient * 0.5)
            for _ in range(2):
                opt.zero_grad()
                net(torch.randn(8, 3)).square().mean().backward()
                opt.step()
        """,
    ),
    "a function of each parameter, once more in each step": Fault(
        "pile-of-hooks",
        "p.register_post_accumulate_grad_hook(shrink)",
        "call its remove() at the end of each round",
        "        p.register_post_accumulate_grad_hook(shrink)",
        "        step or p.register_post_accumulate_grad_hook(shrink)",
        """
        import torch
        net = torch.nn.Linear(3, 1)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def shrink(p):
            p.grad.mul_(0.9)
        for step in range(5):
            for p in net.parameters():
                p.register_post_accumulate_grad_hook(shrink)
            opt.zero_grad()
            net(torch.randn(8, 3)).square().mean().backward()
            opt.step()
        """,
    ),
    "vectors with a rate of their own that are frozen": Fault(
        "idle-optimizer",
        "self.words = nn.Embedding.from_pretrained(vectors)",
        "freeze=False",
        "from_pretrained(vectors)",
        "from_pretrained(vectors, freeze=False)",
        """
        import torch
        from torch import nn
        class Tagger(nn.Module):
            def __init__(self, vectors):
                super().__init__()
                self.words = nn.Embedding.from_pretrained(vectors)
                self.out = nn.Linear(4, 3)
            def forward(self, ids):
                return self.out(self.words(ids)).transpose(1, 2)
        net = Tagger(torch.randn(30, 4))
        groups = [{"params": part.parameters(), "lr": rate} for part, rate in ((net.words, 1e-3), (net.out, 1e-2))]
        opt = torch.optim.Adagrad(groups)
        for _ in range(4):
            opt.zero_grad()
            nn.functional.cross_entropy(net(torch.randint(30, (4, 5))), torch.randint(3, (4, 5))).backward()
            opt.step()
        """,
    ),
    "an outer optimizer whose loss never leads to what it holds": Fault(
        "idle-optimizer",
        "quick = [(w - 0.1 * g).detach().requires_grad_()",
        "remove .detach()",
        "[(w - 0.1 * g).detach().requires_grad_() for",
        "[(w - 0.1 * g) for",
        """
        import torch
        torch.manual_seed(0)
        base = [torch.randn(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)]
        opt = torch.optim.Adam(base, lr=0.01)
        for _ in range(4):
            quick, x = base, torch.randn(8, 3)
            for _ in range(2):
                slopes = torch.autograd.grad((x @ quick[0] + quick[1] - 1).square().mean(), quick, create_graph=True)
                quick = [(w - 0.1 * g).detach().requires_grad_() for w, g in zip(quick, slopes)]
            opt.zero_grad()
            (x @ quick[0] + quick[1] - 1).square().mean().backward()
            opt.step()
        """,
    ),
    "a pupil that is compared with itself": Fault(
        "cancelled-gradient",
        "gap = nn.functional.kl_div(",
        "detach it: x = x.detach()",
        "(guess / 2).softmax(1)",
        "(known / 2).softmax(1).detach()",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        teacher, pupil = nn.Linear(3, 5).requires_grad_(False), nn.Linear(3, 5)
        opt = torch.optim.SGD(pupil.parameters(), lr=0.1)
        def objective(x, y):
            known, guess = teacher(x), pupil(x)
            gap = nn.functional.kl_div((guess / 2).log_softmax(1), (guess / 2).softmax(1), reduction="batchmean")
            return 4 * gap + nn.functional.cross_entropy(guess, y)
        for _ in range(4):
            opt.zero_grad()
            objective(torch.randn(8, 3), torch.randint(5, (8,))).backward()
            opt.step()
        """,
    ),
    "a list of one block": Fault(
        "tied-parameter",
        "self.blocks = nn.Sequential(*[",
        "[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]",
        "[nn.Sequential(nn.Linear(width, width), nn.Tanh())] * depth",
        "[nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)]",
        """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self, width, depth):
                super().__init__()
                self.blocks = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.Tanh())] * depth)
                self.out = nn.Linear(width, 1)
            def forward(self, x):
                return self.out(self.blocks(x))
        net = Net(4, 3)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            nn.functional.mse_loss(net(torch.randn(8, 4)), torch.randn(8, 1)).backward()
            opt.step()
        """,
    ),
    "a list of one layer that has a name": Fault(
        "tied-parameter",
        "self.layers = nn.ModuleList(",
        "copy.deepcopy(layer) for _ in range(3)",
        "[layer] * 3",
        "[copy.deepcopy(layer) for _ in range(3)]",
        """
        import copy, torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self, layer):
                super().__init__()
                self.layers = nn.ModuleList([layer] * 3)
            def forward(self, x):
                for layer in self.layers:
                    x = x + layer(x).tanh()
                return x
        net = Net(nn.Linear(4, 4))
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            nn.functional.mse_loss(net(torch.randn(8, 4)), torch.randn(8, 4)).backward()
            opt.step()
        """,
    ),
}
RIGHT = {
    "a pupil that begins as its teacher, a trick with a value, and a layer that is used twice": """
        import copy, torch
        from torch import nn
        torch.manual_seed(0)
        shared = nn.Linear(5, 5)
        pupil = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), shared, nn.Tanh(), shared)
        teacher = copy.deepcopy(pupil).requires_grad_(False)
        opt = torch.optim.SGD(pupil.parameters(), lr=1e-6)
        for _ in range(4):
            x, y = torch.randn(8, 3), torch.randint(5, (8,))
            guess, known = pupil(x).log_softmax(1), teacher(x).softmax(1)
            sharp = nn.functional.kl_div(guess, (guess / 0.5).softmax(1).detach(), reduction="batchmean")
            chance = guess.gather(1, y[:, None])
            trick = (chance - chance.detach()).exp().mean()
            opt.zero_grad()
            (nn.functional.kl_div(guess, known, reduction="batchmean") + sharp - trick).backward()
            opt.step()
    """,
    "heads that begin at zero, constants that are scales, and a list of layers that are copies": """
        import copy, torch
        from torch import nn
        torch.manual_seed(0)
        layer = nn.Linear(4, 4)
        body = nn.Sequential(nn.LayerNorm(4), *[copy.deepcopy(layer) for layer in [layer] * 2], *[nn.Tanh()] * 2)
        head, scale = nn.Linear(4, 3), nn.Parameter(torch.full((4, 1), 0.1))
        nn.init.zeros_(head.weight)
        opt = torch.optim.SGD([*body.parameters(), *head.parameters(), scale], lr=0.1)
        for _ in range(4):
            opt.zero_grad()
            nn.functional.cross_entropy(head(body(torch.randn(8, 4)) * scale[:, 0]), torch.randint(3, (8,))).backward()
            opt.step()
    """,
    "hooks on what each step computes, and one that is removed": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 1))
        opt, sizes = torch.optim.SGD(net.parameters(), lr=0.1), []
        for step in range(5):
            hidden = net[0](torch.randn(8, 3))
            hidden.register_hook(lambda gradient: sizes.append(gradient.norm().item()))
            handle = net[1].weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
            opt.zero_grad()
            net[1](hidden).square().mean().backward()
            opt.step()
            handle.remove()
    """,
    "a smooth parameter that begins at zero, a copy that follows, and a clipped ratio": """
        import copy, torch
        w, net = torch.zeros(6, requires_grad=True), torch.nn.Linear(6, 3)
        follower = copy.deepcopy(net)
        opt = torch.optim.SGD([w, *net.parameters()], lr=0.1)
        for _ in range(4):
            x, taken = torch.randn(8, 6), torch.randint(3, (8,))
            new = (net(x + w)).log_softmax(1).gather(1, taken[:, None])
            old = new.detach()
            loss = (w[1:] - w[:-1]).square().sum() + (w - 1).square().sum() - (new - old).exp().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            for slow, fast in zip(follower.parameters(), net.parameters()):
                slow.data.mul_(0.9).add_(fast.data, alpha=0.1)
                fast.data.add_(fast.data)
                fast.data.mul_(0.5)
    """,
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


TAKEN = """
import torch
torch.manual_seed(0)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32), torch.rand(32) > 0.3)
loader = torch.utils.data.DataLoader(data, 8)

def train():
    for epoch in range(2):
        for {taken}:
            {made}
            loss = {loss}
            opt.zero_grad()
            loss.backward()
            opt.step()

train()
"""
UNREAD = {
    "a mask": {
        "taken": "x, y, seen in loader",
        "made": "error = net(x).squeeze(1) - y",
        "loss": "error.square().mean()",
    },
    "what is done": {
        "taken": "batch in loader",
        "made": "s, r, d = batch[0], batch[1], batch[2].float()",
        "loss": "(net(s)[:, 0] - r - 0.9 * net(s).detach()[:, 0]).abs().mean()",
    },
}
READ = {
    "a mask that is used": UNREAD["a mask"] | {"loss": "error[seen].square().mean()"},
    "a mask that is left out": UNREAD["a mask"] | {"taken": "x, y, _seen in loader"},
    "in the next round": {
        "taken": "x, y, seen in loader",
        "made": "y = y * last if epoch else y; last = seen",
        "loss": "(net(x)[:, 0] - y).square().mean()",
    },
    "labels that an autoencoder has no use for": {
        "taken": "x, y in ((x, y) for x, y, seen in loader)",
        "made": "pass",
        "loss": "(net(x) - x).square().mean()",
    },
}


@pytest.mark.parametrize("words", UNREAD.values(), ids=UNREAD)
def test_a_part_of_the_batch_that_nothing_reads(words: dict[str, str], tmp_path: Path) -> None:
    script = TAKEN.format_map(words)
    (found,) = alarms(script, tmp_path)
    assert (found["id"], "never read" in found["summary"]) == ("no-effect", True)
    taken = words["made"] if "batch" in words["taken"] else words["taken"]
    number = next(i for i, text in enumerate(script.splitlines(), 1) if taken in text)
    assert f"script.py:{number}" in found["where"]


@pytest.mark.parametrize("words", READ.values(), ids=READ)
def test_a_batch_that_is_read(words: dict[str, str], tmp_path: Path) -> None:
    script = TAKEN.format_map(words).replace("def train():\n", "def train():\n    last = 1\n")
    assert not alarms(script, tmp_path)
