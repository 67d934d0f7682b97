"""For each check the script nearest to one that triggers it, which must not."""

from __future__ import annotations

NEAR: dict[str, str] = {
    "no-graph": """
        import torch

        model = torch.nn.Linear(3, 1)
        prediction = model(torch.ones(2, 3))
        loss = prediction.mean()
        print(loss.item(), prediction.detach())
        loss.backward()
    """,
    "unused-parameter": """
        import torch

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.used = torch.nn.Linear(4, 1)
                self.remembered = torch.nn.Linear(4, 1)

            def forward(self, x):
                return self.used(x) + self.remembered(x)

        model = Model()
        loss = model(torch.ones(2, 4)).sum()
        loss.backward()
    """,
    "reference-cycle": """
        import torch

        class Exponential(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.given, ctx.size = x, len(x)
                return x.exp()

            @staticmethod
            def backward(ctx, gradient):
                return gradient * ctx.given.exp()

        def step(x):
            hidden = Exponential.apply(x)
            size = hidden.detach().abs().mean()
            hidden.register_hook(lambda gradient: gradient / size)
            hidden.sum().backward()

        step(torch.ones(3, requires_grad=True) * 2)
    """,
    "unused-graph": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        model.eval()
        for batch in range(4):
            x = torch.ones(2, 3, requires_grad=True)
            print(torch.autograd.grad(model(x).mean(), x))
        with torch.no_grad():
            print(sum(model(torch.ones(2, 3)).mean() for batch in range(4)))
        print(model(torch.ones(2, 3)))
    """,
    "none-grad": """
        import torch

        w = torch.ones(3, requires_grad=True)
        hidden = w * 2
        hidden.retain_grad()
        loss = hidden.sum()
        loss.backward()
        print(hidden.grad)
    """,
    "no-slope": """
        import torch

        encoder, decoder = torch.nn.Linear(4, 3), torch.nn.Linear(3, 4)
        x = torch.randn(8, 4)
        code = encoder(x)
        code = code + (torch.round(code) - code).detach()
        phase = 3 * code - torch.floor(3 * code)
        loss = (decoder(code) - x).square().mean() + 0.1 * (code - torch.round(code)).square().mean()
        (loss + phase.mean()).backward()
    """,
    "never-reached": """
        import torch

        model, shift = torch.nn.Linear(3, 1), torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([*model.parameters(), shift], lr=0.1)
        for step in range(3):
            x = torch.ones(2, 3) + shift
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    """,
    "nonleaf-parameter": """
        import torch

        w = torch.tensor(2.0, requires_grad=True)
        for step in range(3):
            loss = (w - 1) ** 2
            (slope,) = torch.autograd.grad(loss, w)
            with torch.no_grad():
                w -= 0.1 * slope
    """,
    "constant-term": """
        import torch

        model = torch.nn.Linear(3, 2)
        scores = model(torch.ones(4, 3))
        mistakes = (scores.argmax(1) != 1).float().mean()
        loss = torch.nn.functional.cross_entropy(scores, torch.ones(4).long()) * (1 + mistakes)
        print(loss.item() + mistakes)
        policy = torch.distributions.Normal(scores, 1.0)
        action = policy.sample()
        before = scores.sum(1).detach()
        surprise = -(policy.log_prob(action) * (action > 0)).sum(1)
        (loss + (scores.sum(1) - before).mean() + surprise.mean()).backward()
    """,
    "never-updated": """
        import torch

        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(body.parameters(), lr=0.1)
        for step in range(3):
            loss = head(body(torch.ones(2, 3))).square().mean()
            optimizer.zero_grad()
            head.zero_grad()
            loss.backward()
            optimizer.step()
            for weight in head.parameters():
                weight.data -= 0.1 * weight.grad
    """,
    "idle-optimizer": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warmup.step()
    """,
    "not-frozen": """
        import torch

        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        for parameter in body.parameters():
            parameter.requires_grad = False
        body.requires_check = False
        optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
        for step in range(3):
            loss = head(body(torch.ones(2, 3))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "dead-relu": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(30):  # a margin that is reached leaves no gradient
            x = torch.randn(16, 4)
            y = torch.sign(x[:, :1])
            loss = torch.relu(0.01 - y * model(x) - 3 * x[:, :1].abs()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "stale-saved": """
        import torch

        x = torch.randn(3, requires_grad=True)
        activation = torch.exp(x) * 2
        activation.add_(1)
        loss = activation.sum()
        loss.backward()
    """,
    "freed-graph": """
        import torch

        cell = torch.nn.RNNCell(2, 3)
        state = torch.zeros(1, 3)
        for step in range(3):
            state = cell(torch.ones(1, 2), state)
            loss = state.sum()
            loss.backward()
            state = state.detach()
    """,
    "growing-graph": """
        import torch

        w = torch.ones(1, requires_grad=True)
        total = 0.0
        for step in range(3):
            x = w
            for turn in range(step + 1):  # every graph is larger than the last, and none reaches back
                x = x * 2
            loss = (x - 1).square().sum()
            loss.backward()
            total = total + loss.detach()
    """,
    "nonfinite": """
        import torch

        x = torch.zeros(3, requires_grad=True)
        loss = torch.sqrt(x.square().sum() + 1e-6)
        loss.backward()
    """,
    "exploding-gradient": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(12)))
        loss = model(torch.randn(4, 8)).mean() / 1e6
        loss.backward()
    """,
    "gradient-not-reset": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
    """,
    "outdated-result": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        start = model.weight.detach().clone()
        for step in range(3):
            penalty = (model.weight - start).square().sum()
            loss = model(torch.ones(2, 3)).square().mean() + penalty
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "other-gradient": """
        import torch

        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        first = torch.optim.SGD(body.parameters(), lr=0.1)
        second = torch.optim.SGD(head.parameters(), lr=0.1)
        for step in range(4):
            features = body(torch.rand(2, 3))
            second.zero_grad()
            head(features.detach()).square().mean().backward()
            second.step()
            first.zero_grad()
            head(features).mean().backward()
            first.step()
    """,
    "no-effect": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            target = model(torch.ones(2, 3))
            target = target.detach()
            loss = (model(torch.ones(2, 3)) - target - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                model.weight.clamp_(-1, 1)
                large = []
                for weight in model.parameters():
                    weight = weight.abs()
                    large.append(weight.max().item())
    """,
    "cut-state": """
        import torch

        cell, h = torch.nn.GRUCell(3, 4), torch.zeros(2, 4)
        for xs in torch.randn(3, 5, 2, 3):
            h = h.detach()
            for x in xs:
                h = cell(x, h)
            h.sum().backward()
    """,
    "no-clipping": """
        import torch
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
    """,
    "no-update": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    "raised": """
        import torch

        model = torch.nn.Linear(3, 1)
        loss = (model(torch.ones(2, 3)) - 1).square()
        loss.backward(torch.ones_like(loss))
        try:
            model.weight += 1
        except RuntimeError as error:
            print(error)
    """,
    "loss-input": """
        import torch

        model = torch.nn.Linear(4, 3)
        scores = model(torch.ones(2, 4))
        print(torch.softmax(scores, 1))
        entropy = torch.nn.functional.nll_loss(scores.log_softmax(1), torch.tensor([0, 2]))
        loss = entropy + (scores.softmax(1) * scores.log_softmax(1)).sum(1).mean()
        loss.backward()
    """,
    "retained-graph": """
        import torch

        model = torch.nn.Linear(3, 1)
        for step in range(4):
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward(retain_graph=True)
            (slope,) = torch.autograd.grad(loss, model.weight)
            model.zero_grad()
    """,
    "broadcast": """
        import torch

        model = torch.nn.Linear(3, 1)
        target, weight = torch.randn(8), torch.rand(8)
        error = (model(torch.ones(8, 3)).squeeze(1) - target).square()
        every = (target[:, None] - target).abs().mean()
        loss = (error * weight).mean() + every
        loss.backward()
    """,
    "wrong-mode": """
        import torch


        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer, self.norm = torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)

            def forward(self, x):
                return self.norm(self.layer(torch.nn.functional.dropout(x, 0.5, self.training)))


        model, teacher = Model(), Model().eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model.eval()
            with torch.no_grad():
                model(torch.ones(2, 3))
                target = teacher(torch.randn(2, 3))
            model.train()
            loss = (model(torch.randn(2, 3)) - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "doubled-gradient": """
        import torch

        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            scores = model(torch.ones(2, 3))
            optimizer.zero_grad()
            scores.square().mean().backward(retain_graph=True)
            scores.logsumexp(1).mean().backward()
            optimizer.step()
    """,
    "wrong-backward": """
        import torch


        class Step(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, scale):
                ctx.save_for_backward(x)
                return (x * scale).round() / scale

            @staticmethod
            def backward(ctx, grad_output):
                (x,) = ctx.saved_tensors
                return grad_output * (x.abs() < 1), None


        w = torch.full((3,), 0.3, requires_grad=True)
        loss = Step.apply(w, 4.0).sum()
        loss.backward()
    """,
}
