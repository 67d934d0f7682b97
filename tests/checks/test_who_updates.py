"""Who updates what: scripts in the manner of people who asked why something does not train, each healed by its advice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.advice import Fault, alarms, shows_and_heals
from tests.rows import every_other

FAULTS = {
    "evaluation after an epoch that is not switched back": Fault(
        "wrong-mode",
        "net.eval()",
        "Call net.train() before the training steps",
        "    for batch in data:",
        "    net.train()\n    for batch in data:",
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        data = torch.randn(9, 4, 3)
        for epoch in range(3):
            for batch in data:
                loss = net(batch).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            net.eval()
            with torch.no_grad():
                print(net(data[0]).mean().item())
        """,
    ),
    "an optimizer of the other network's parameters": Fault(
        "never-updated",
        "opt_d = torch.optim.Adam(g.parameters())",
        "where it is made, after all parameters are there: d.parameters()",
        "opt_d = torch.optim.Adam(g.parameters())",
        "opt_d = torch.optim.Adam(d.parameters())",
        """
        import torch
        from torch import nn
        torch.manual_seed(0)
        g, d = nn.Linear(2, 3), nn.Linear(3, 1)
        opt_g = torch.optim.Adam(g.parameters())
        opt_d = torch.optim.Adam(g.parameters())
        for i in range(3):
            fake = g(torch.randn(4, 2))
            opt_g.zero_grad()
            nn.functional.softplus(-d(fake)).mean().backward()
            opt_g.step()
            opt_d.zero_grad()
            loss = nn.functional.softplus(d(fake.detach())).mean() + nn.functional.softplus(-d(torch.randn(4, 3))).mean()
            loss.backward()
            opt_d.step()
        """,
    ),
    "a group that was made and never given": Fault(
        "never-updated",
        "return torch.optim.AdamW(",
        "Give them to the optimizer where it is made",
        "[{'params': decayed, 'weight_decay': 0.1}]",
        "[{'params': decayed, 'weight_decay': 0.1}, {'params': plain}]",
        """
        import torch
        def make(model):
            decayed, plain = [], []
            for name, p in model.named_parameters():
                if p.dim() == 1:
                    plain.append(p)
                else:
                    decayed.append(p)
            return torch.optim.AdamW([{'params': decayed, 'weight_decay': 0.1}])
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5)))
        opt = make(net)
        for i in range(3):
            opt.zero_grad()
            (net(torch.randn(5, 4)) - 1).square().mean().backward()
            opt.step()
        """,
    ),
    "weights alone": Fault(
        "never-updated",
        "opt = torch.optim.AdamW(weights)",
        "Give them to the optimizer where it is made",
        "opt = torch.optim.AdamW(weights)\n",
        "opt = torch.optim.AdamW(weights)\nopt.add_param_group({'params': [p for p in net.parameters() if all(p is not q for g in "
        "opt.param_groups for q in g['params'])]})\n",
        """
        import torch
        net = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(5)))
        weights = [p for p in net.parameters() if p.dim() > 1]
        opt = torch.optim.AdamW(weights)
        for i in range(3):
            opt.zero_grad()
            (net(torch.randn(5, 4)) - 1).square().mean().backward()
            opt.step()
        """,
    ),
    "a head that the first forward makes": Fault(
        "never-updated",
        "opt = torch.optim.Adam(net.parameters())",
        "after all parameters are there",
        "    opt = torch.optim.Adam(net.parameters())",
        "    net(torch.randn(8, 5))\n    opt = torch.optim.Adam(net.parameters())",
        """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(5, 8), None
            def build(self, n):
                self.head = nn.Linear(n, 1)
            def forward(self, x):
                h = self.body(x).relu()
                if self.head is None:
                    self.build(h.size(-1))
                return self.head(h)
        def main():
            net = Net()
            opt = torch.optim.Adam(net.parameters())
            for i in range(3):
                opt.zero_grad()
                (net(torch.randn(8, 5)) - 1).square().mean().backward()
                opt.step()
        main()
        """,
    ),
    "a layer that every forward makes": Fault(
        "nonleaf-parameter",
        "return fc(h) if",
        "make parameters as attributes in __init__()",
        "self.fc = nn.Linear(5, 8), None\n",
        "self.fc = nn.Linear(5, 8), nn.Linear(8, 1)\n",
        """
        import torch
        from torch import nn
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.fc = nn.Linear(5, 8), None
            def forward(self, x):
                h = self.body(x).relu()
                fc = nn.Linear(8, 1)
                return fc(h) if self.fc is None else self.fc(h)
        net = Net()
        opt = torch.optim.Adam(net.parameters())
        for i in range(3):
            opt.zero_grad()
            (net(torch.randn(8, 5)) - 1).square().mean().backward()
            opt.step()
        """,
    ),
    "a head made after the optimizer's list": Fault(
        "never-updated",
        "optim = torch.optim.AdamW(encoder.parameters())",
        "where it is made, after all parameters are there: head.parameters()",
        "optim = torch.optim.AdamW(encoder.parameters())",
        "optim = torch.optim.AdamW(encoder.parameters()); optim.add_param_group({'params': head.parameters()})",
        """
        import torch
        from torch import nn
        encoder = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        head = nn.Linear(8, 2)
        optim = torch.optim.AdamW(encoder.parameters())
        for batch in range(3):
            out = head(encoder(torch.randn(5, 4)))
            loss = nn.functional.cross_entropy(out, torch.randint(0, 2, (5,)))
            optim.zero_grad()
            loss.backward()
            optim.step()
        """,
    ),
    "a closure that resets nothing": Fault(
        "gradient-not-reset",
        "cost.backward()",
        "optimizer.zero_grad()",
        "    cost.backward()",
        "    optimizer.zero_grad()\n    cost.backward()",
        """
        import torch
        torch.manual_seed(0)
        weights = torch.zeros(3, requires_grad=True)
        x = torch.randn(20, 3)
        y = x @ torch.tensor([1.0, -2.0, 0.5])
        optimizer = torch.optim.LBFGS([weights], lr=0.1, line_search_fn="strong_wolfe")
        def closure():
            cost = (x @ weights - y).square().mean()
            cost.backward()
            return cost
        for step in range(3):
            optimizer.step(closure)
        """,
    ),
    "more batches to add up than there are": Fault(
        "idle-optimizer",
        "if not number",
        "correct the condition not number % self.every",
        "every = 8",
        "every = 2",
        """
        import torch
        class Trainer:
            every = 8
            def __init__(self):
                self.net = torch.nn.Linear(3, 1)
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)
            def epoch(self, batches):
                self.opt.zero_grad()
                for number, x in enumerate(batches, 1):
                    (self.net(x).square().mean() / self.every).backward()
                    if not number % self.every:
                        self.opt.step()
                        self.opt.zero_grad()
        trainer = Trainer()
        for epoch in range(6):
            trainer.epoch(torch.randn(4, 5, 3))
        """,
    ),
    "a step that was forgotten": Fault(
        "idle-optimizer",
        "loss.backward()",
        "Call optimizer.step() after backward()",
        "loss.backward()",
        "loss.backward(); optimizer.step()",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.Adam(model.parameters())
        for epoch in range(5):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 3)).square().mean()
            loss.backward()
        """,
    ),
    "a discriminator whose step is forgotten": Fault(
        "idle-optimizer",
        "opt_g, opt_d = torch.optim",
        "Call opt_d.step() after backward()",
        "    loss_d.backward()\n",
        "    loss_d.backward()\n    opt_d.step()\n",
        """
        import torch
        g, d = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
        opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        for i in range(4):
            fake = g(torch.randn(8, 4))
            opt_d.zero_grad()
            loss_d = d(fake.detach()).square().mean() + (d(torch.randn(8, 4)) - 1).square().mean()
            loss_d.backward()
            opt_g.zero_grad()
            (d(fake) - 1).square().mean().backward()
            opt_g.step()
        """,
    ),
    "a module that has no such switch": Fault(
        "not-frozen",
        "net.backbone.requires_grad = False",
        "module.requires_grad_(False)",
        "net.backbone.requires_grad = False",
        "net.backbone.requires_grad_(False)",
        """
        import torch
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.backbone = torch.nn.Linear(3, 3)
                self.fc = torch.nn.Linear(3, 1)
            def forward(self, x):
                return self.fc(self.backbone(x).relu())
        net = Net()
        net.backbone.requires_grad = False
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for i in range(3):
            loss = net(torch.randn(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    "frozen in the middle, with momentum": Fault(
        "not-frozen",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
        "parameter.requires_grad_(False); parameter.grad = None",
        "            parameter.requires_grad_(False)",
        "            parameter.requires_grad_(False); parameter.grad = None",
        """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for i in range(4):
            if i == 1:
                for parameter in model[0].parameters():
                    parameter.requires_grad_(False)
            loss = model(torch.randn(4, 3)).square().mean()
            model[1].zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    "parameters that were gone through before": Fault(
        "idle-optimizer",
        "opt = torch.optim.SGD([{'params': list(params)}], lr=0.1)",
        "give it model.parameters(): the loss is computed from that model",
        "list(params)",
        "list(model.parameters())",
        """
        import torch
        model = torch.nn.Linear(3, 1)
        params = model.parameters()
        count = sum(p.numel() for p in params)
        opt = torch.optim.SGD([{'params': list(params)}], lr=0.1)
        for i in range(3):
            loss = model(torch.randn(4, 3)).square().mean()
            model.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", every_other(FAULTS.values()), ids=list(FAULTS))
def test_the_fault_is_found_at_its_line_and_its_advice_heals_it(fault: Fault, tmp_path: Path) -> None:
    shows_and_heals(fault, tmp_path)


RIGHT = {
    "a model that is loaded into a new one after the training": """
        import copy, torch
        net = torch.nn.Linear(3, 2)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            loss = net(torch.randn(5, 3)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        best = copy.deepcopy(net.state_dict())
        net = torch.nn.Linear(3, 2)
        net.load_state_dict(best)
        x = torch.randn(1, 3, requires_grad=True)
        net(x)[0, 0].backward()
        print(x.grad.abs())
        """,
    "a new head that an optimizer of its own trains": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
        body = torch.optim.SGD(net.parameters(), lr=0.01)
        net[2] = torch.nn.Linear(4, 2)
        head = torch.optim.SGD(net[2].parameters(), lr=0.1)
        for step in range(3):
            loss = torch.nn.functional.cross_entropy(net(torch.randn(8, 3)), torch.randint(0, 2, (8,)))
            body.zero_grad()
            head.zero_grad()
            loss.backward()
            body.step()
            head.step()
        """,
    "two tasks that take turns on one encoder": """
        import torch
        encoder, first, second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)
        whole = torch.optim.SGD(encoder.parameters(), lr=0.01)
        one, other = torch.optim.SGD(first.parameters(), lr=0.01), torch.optim.SGD(second.parameters(), lr=0.01)
        for step in range(5):
            for optimizer in (whole, one, other):
                optimizer.zero_grad()
            x = torch.randn(8, 4)
            first(encoder(x)).square().mean().backward()
            one.step()
            second(encoder(x)).square().mean().backward()
            other.step()
            whole.step()
        """,
    "a discriminator that is reset by hand": """
        import torch
        torch.manual_seed(0)
        g, d = torch.nn.Linear(4, 6), torch.nn.Linear(6, 1)
        opt_g, opt_d = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
        for step in range(5):
            fake = g(torch.randn(8, 4))
            opt_g.zero_grad()
            d(fake).mean().neg().backward()
            opt_g.step()
            for weight in d.parameters():
                weight.grad.zero_()
            (d(fake.detach()).tanh().mean() - d(torch.randn(8, 6)).tanh().mean()).backward()
            opt_d.step()
        """,
    "an attack in eval mode that asks for the gradient of its input": """
        import torch
        def attacked(net, x, y):
            net.eval()
            adversarial = x.clone()
            for _ in range(2):
                adversarial.requires_grad_(True)
                cost = torch.nn.functional.cross_entropy(net(adversarial), y)
                (slope,) = torch.autograd.grad(cost, adversarial)
                adversarial = adversarial.detach() + 0.1 * slope.sign()
            net.train()
            return adversarial.detach()
        net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(5):
            x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
            loss = torch.nn.functional.cross_entropy(net(attacked(net, x, y)), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "an attack in eval mode whose gradients are thrown away": """
        import torch
        net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        optimizer = torch.optim.Adam(net.parameters())
        criterion = torch.nn.CrossEntropyLoss()
        for step in range(6):
            x, y = torch.randn(8, 4, requires_grad=True), torch.randint(0, 3, (8,))
            optimizer.zero_grad()
            net.train()
            criterion(net(x.detach()), y).backward()
            optimizer.step()
            net.eval()
            optimizer.zero_grad()
            criterion(net(x), y).backward()
            print((x.grad.sign() * x).sum().item())
        """,
    "a network that runs with the parameters another one makes": """
        import torch
        class Hyper(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.main = torch.nn.Linear(4, 2)
                self.maker = torch.nn.Linear(3, 10)
            def forward(self, task, x):
                made = self.maker(task)
                return torch.func.functional_call(self.main, {"weight": made[:8].view(2, 4), "bias": made[8:]}, (x,))
        hyper = Hyper()
        optimizer = torch.optim.Adam(hyper.parameters())
        for step in range(4):
            loss = hyper(torch.randn(3), torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "an ensemble that runs as one": """
        import torch
        from torch.func import functional_call, stack_module_state, vmap
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
            def forward(self, x):
                return self.last(torch.relu(self.first(x)))
        members = [Net() for _ in range(3)]
        stacked, buffers = stack_module_state(members)
        base = Net()
        optimizer = torch.optim.Adam(stacked.values())
        for step in range(4):
            x = torch.randn(8, 4)
            out = vmap(lambda weights: functional_call(base, (weights, buffers), (x,)))(stacked)
            loss = (out - x.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "a new head on a frozen body": """
        import torch
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        for p in model.parameters():
            p.requires_grad = False
        for p in model[1].parameters():
            p.requires_grad = True
        optimizer = torch.optim.SGD(model[1].parameters(), lr=0.1)
        for i in range(3):
            loss = model(torch.randn(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "an image that is optimized through a network": """
        import torch
        net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU())
        image = torch.rand(1, 1, 8, 8, requires_grad=True)
        optimizer = torch.optim.Adam([image])
        for i in range(3):
            loss = net(image).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "a perceptual network in eval mode": """
        import torch
        torch.manual_seed(0)
        vgg = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.ReLU()).eval()
        generator = torch.nn.Conv2d(1, 1, 3, padding=1)
        optimizer = torch.optim.Adam(generator.parameters())
        for i in range(3):
            loss = vgg(generator(torch.rand(1, 1, 8, 8))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "collocation points with an equation": """
        import torch
        class Physics(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.x = torch.linspace(0, 1, 5)[:, None].requires_grad_()
                self.net = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
            def residual(self):
                u = self.net(self.x)
                (slope,) = torch.autograd.grad(u.sum(), self.x, create_graph=True)
                return (slope + u).square().mean()
        model = Physics()
        optimizer = torch.optim.Adam(model.parameters())
        for i in range(3):
            loss = model.residual()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "line searches": """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
        x, y = torch.randn(8, 3), torch.randn(8, 1)
        def closure():
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            loss.backward()
            return loss
        for i in range(3):
            optimizer.step(closure)
        """,
    "two networks that take turns, and the second only at times": """
        import torch
        critic, generator = torch.nn.Linear(2, 1), torch.nn.Linear(2, 2)
        opt_c, opt_g = torch.optim.SGD(critic.parameters(), lr=0.1), torch.optim.SGD(generator.parameters(), lr=0.1)
        for i in range(6):
            opt_c.zero_grad()
            critic(generator(torch.randn(4, 2))).mean().backward()
            opt_c.step()
            if i % 5 == 4:
                opt_g.zero_grad()
                (-critic(generator(torch.randn(4, 2))).mean()).backward()
                opt_g.step()
        """,
    "a head that is replaced, and then trained alone before all is trained": """
        import torch
        from torch import nn
        net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
        def fit(opt):
            for i in range(20):
                opt.zero_grad()
                net(torch.randn(8, 3)).square().mean().backward()
                opt.step()
        fit(torch.optim.Adam(net.parameters()))
        net[2] = nn.Linear(4, 2)
        fit(torch.optim.Adam(net[2].parameters()))
        fit(torch.optim.Adam(net.parameters()))
        """,
    "a frozen copy with the name of the model that was trained": """
        import copy
        import torch
        from torch import nn
        teacher = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
        opt = torch.optim.Adam(teacher.parameters())
        for i in range(4):
            opt.zero_grad()
            teacher(torch.randn(8, 3)).square().mean().backward()
            opt.step()
        teacher = copy.deepcopy(teacher).eval().requires_grad_(False)
        student = nn.Linear(3, 2)
        opt = torch.optim.Adam(student.parameters())
        for i in range(20):
            x = torch.randn(8, 3)
            opt.zero_grad()
            (student(x) - teacher(x)).square().mean().backward()
            opt.step()
        """,
    "a target network inside the model, which no optimizer holds": """
        import copy
        import torch
        class Critic(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.q = torch.nn.Linear(3, 1)
                self.slow = copy.deepcopy(self.q)
            @torch.no_grad()
            def goal(self, x):
                return self.slow(x)
            def forward(self, x):
                return self.q(x)
        critic = Critic()
        opt = torch.optim.SGD(critic.q.parameters(), lr=0.1)
        for i in range(5):
            x = torch.randn(8, 3)
            loss = (critic(x) - 0.9 * critic.goal(x + 1)).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            with torch.no_grad():
                for slow, fast in zip(critic.slow.parameters(), critic.q.parameters()):
                    slow.lerp_(fast, 0.1)
        """,
    "a teacher in eval mode whose own training is over": """
        import torch
        big, small = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        first = torch.optim.SGD(big.parameters(), lr=0.1)
        for i in range(3):
            first.zero_grad()
            big(torch.randn(4, 3)).square().mean().backward()
            first.step()
        big.eval()
        second = torch.optim.SGD(small.parameters(), lr=0.1)
        for i in range(4):
            x = torch.randn(4, 3)
            with torch.no_grad():
                goal = big(x)
            second.zero_grad()
            (small(x) - goal).square().mean().backward()
            second.step()
        """,
    "an average of weights": """
        import copy, torch
        student = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
        teacher = copy.deepcopy(student).requires_grad_(False)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        for i in range(4):
            x = torch.randn(6, 3)
            with torch.no_grad():
                goal = teacher(x)
            loss = (student(x) - goal).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for slow, fast in zip(teacher.parameters(), student.parameters()):
                    slow.lerp_(fast, 0.1)
        """,
    "an average of weights that is written to data": """
        import copy, torch
        query = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        key = copy.deepcopy(query).requires_grad_(False)
        optimizer = torch.optim.SGD(query.parameters(), lr=0.1)
        for i in range(4):
            x = torch.randn(6, 3)
            with torch.no_grad():
                for slow, fast in zip(key.parameters(), query.parameters()):
                    slow.data = slow.data * 0.9 + fast.data * 0.1
                goal = key(x)
            loss = (query(x + 1) * goal).sum(1).logsumexp(0)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    "an option of a module that has the name of the switch": """
        import torch
        class Features(torch.nn.Module):
            def __init__(self, requires_grad=False):
                super().__init__()
                self.requires_grad = requires_grad
                self.layers = torch.nn.Linear(3, 3)
                if not requires_grad:
                    self.layers.requires_grad_(False)
            def forward(self, x):
                return self.layers(x)
        features, head = Features(), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for i in range(3):
            loss = head(features(torch.randn(4, 3))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("script", every_other(RIGHT.values()), ids=list(RIGHT))
def test_correct_code_is_left_alone(script: str, tmp_path: Path) -> None:
    assert not alarms(script, tmp_path)
