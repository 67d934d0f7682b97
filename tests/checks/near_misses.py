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
    "alias": """
        import copy
        import torch

        model = torch.nn.Linear(3, 1)
        target, again = copy.deepcopy(model), model
        optimizer = torch.optim.SGD(again.parameters(), lr=0.1)
        best = copy.deepcopy(model.state_dict())
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            target.load_state_dict(again.state_dict())
        model.load_state_dict(best)
    """,
    "no-effect": """
        import torch

        model = torch.nn.Linear(3, 1)
        model.to("cpu")
        w = torch.ones(3, requires_grad=True)
        x = w * 2
        x.relu_()
        torch.clamp(x.detach(), 0, 1, out=torch.empty(3))
        x.register_hook(print)
        try:
            x.to("meta")
        except RuntimeError:
            pass
        loss = model(x).sum()
        loss.backward()
        w.grad.abs()
    """,
    "not-called": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step = optimizer.step
        for i in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            step()
        model.eval
    """,
    "first-order": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            x = torch.ones(2, 3, requires_grad=True)
            loss = model(x).square().mean()
            (slope,) = torch.autograd.grad(loss, x)
            (gradient,) = torch.autograd.grad(model(x + slope).sum(), model.weight, create_graph=False)
            fast = model.weight - 0.1 * gradient
            meta_loss = (torch.ones(2, 3) @ fast.T + model.bias).square().mean()
            optimizer.zero_grad()
            meta_loss.backward()
            optimizer.step()
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
    "unseen-change": """
        import torch

        model = torch.nn.Linear(3, 4)
        probabilities = model(torch.ones(2, 3)).softmax(1)
        shown = probabilities.data.clone()
        shown[:, 0] = 0
        loss = probabilities[:, 1].log().mean()
        loss.backward()
        probabilities.data[:, 0] = 0
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
        loss.backward()
    """,
    "zero-derivative": """
        import torch

        model = torch.nn.Linear(3, 1)
        y = model(torch.ones(4, 3))
        loss = (y + (torch.round(y) - y).detach() - 1).abs().mean() + 0.1 * torch.sign(y).mean()
        loss.backward()
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
    "moving-statistics": """
        import torch

        backbone = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).requires_grad_(False).eval()
        head = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        for step in range(3):
            loss = head(backbone(torch.randn(8, 3))).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "saturated": """
        import torch

        torch.manual_seed(0)
        class Gated(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))
                self.last = torch.nn.Linear(8, 1)

            def forward(self, x):
                for layer in self.layers:
                    x = torch.sigmoid(100 * layer(x)) * torch.tanh(layer(x))  # gates may be open or closed
                return self.last(x)

        model = Gated()
        loss = model(torch.randn(8, 8)).square().mean()
        loss.backward()
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
    "scheduler-order": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for epoch in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    """,
    "eval-while-training": """
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model.eval()
            with torch.no_grad():
                model(torch.ones(2, 3))
            model.train()
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "seeded-again": """
        import torch

        model = torch.nn.Linear(3, 1)
        for step in range(6):
            torch.manual_seed(step)
            loss = model(torch.randn(2, 3)).square().mean()
            model.zero_grad()
            loss.backward()
    """,
    "useless-labels": """
        import torch

        model = torch.nn.Linear(3, 4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            labels = torch.tensor([1, 2, -100, 3])
            loss = torch.nn.functional.cross_entropy(model(torch.ones(4, 3)), labels, ignore_index=-100)
            rare = torch.nn.functional.cross_entropy(model(torch.ones(8, 3)), torch.tensor([2] * 8))
            optimizer.zero_grad()
            (loss + rare).backward()
            optimizer.step()
    """,
    "padding-counted": """
        import torch

        model = torch.nn.Linear(3, 1)
        for step in range(3):
            mask = (torch.arange(6) < torch.tensor([[6], [4], [2]])).float()
            error = model(torch.ones(3, 6, 3)).squeeze(2).square()
            loss = (error * mask).sum() / mask.sum() + (error * mask).mean() / mask.mean()
            loss.backward()
            model.zero_grad()
    """,
    "untied": """
        import torch

        embedding, head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
        model = torch.nn.Sequential(embedding, head)
        head.weight = embedding.weight
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = torch.nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5).roll(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "all-zero": """
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Sigmoid())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = torch.nn.functional.binary_cross_entropy(model(torch.ones(4, 3)), torch.zeros(4, 1) + 0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "zero-start": """
        import torch

        A, B = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.zeros(1, 2))
        layer = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD([A, B, *layer.parameters()], lr=0.1)
        for step in range(3):
            x = torch.ones(2, 3)
            loss = (layer(x) + x @ A.t() @ B.t() - 1).square().mean()
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
    "vanishing-gradient": """
        import torch

        torch.manual_seed(0)
        layers = [layer for _ in range(12) for layer in (torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.ReLU())]
        model = torch.nn.Sequential(*layers)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
    """,
    "exploding-gradient": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(12)))
        loss = model(torch.randn(4, 8)).mean() / 1e6
        loss.backward()
    """,
    "zero-gradient": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        torch.nn.init.constant_(model[0].bias, 100.0)
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
    """,
    "large-saved": """
        import torch

        x = torch.ones(64, 64, requires_grad=True)
        loss = torch.exp(x).sum()
        loss.backward()
    """,
    "paid-frozen": """
        import torch

        embedding, body, head = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)
        model = torch.nn.Sequential(embedding, body, torch.nn.ReLU(), head)
        embedding.requires_grad_(False)
        body.requires_grad_(False)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
        loss = model(torch.arange(100)).square().mean()
        loss.backward()
        optimizer.step()
    """,
    "duplicate-saved": """
        import torch

        w = torch.ones(64, 64, requires_grad=True)
        x = torch.exp(w).t()
        loss = (x.sin() + x.sin()).sum()
        loss.backward()
    """,
    "saved-cast": """
        import torch

        w = torch.ones(64, 64, requires_grad=True)
        half = (w * 2).to(torch.bfloat16)
        loss = (half.sin() + half).float().sum()
        loss.backward()
    """,
    "requires-grad-input": """
        import torch

        model = torch.nn.Linear(3, 1)
        x = torch.ones(2, 3)
        loss = model(x).sum()
        loss.backward()
    """,
    "tied-parameter": """
        import torch

        layer = torch.nn.Linear(3, 3)
        model = torch.nn.Sequential(layer, torch.nn.Linear(3, 3))
        loss = model(model(torch.ones(1, 3))).sum()
        loss.backward()
    """,
    "hooks-present": """
        import torch

        w = torch.ones(3, requires_grad=True)
        handle = w.register_hook(lambda gradient: gradient * 2)
        handle.remove()
        loss = (w * w).sum()
        loss.backward()
    """,
    "double-backward": """
        import torch

        w = torch.ones(3, requires_grad=True)
        score = torch.tanh(w).sum()
        (slope,) = torch.autograd.grad(score, w)
        loss = (w * slope).square().sum()
        loss.backward()
    """,
    "deep-graph": """
        import torch

        x = torch.ones(1, requires_grad=True)
        loss = sum(x * i for i in range(4_000)).sum()
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
    "graph-break": """
        import torch


        def step(x):
            return x.sin().cos().sum()


        x = torch.ones(3, requires_grad=True)
        loss = torch.compile(step, backend="aot_eager")(x)
        loss.backward()
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
    "clip-order": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            print(torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf")))
    """,
    "scaler-order": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
        scaler = torch.amp.GradScaler("cpu")
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    "accumulation": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(8):
            loss = model(torch.ones(2, 3)).square().mean() / 4
            loss.backward()
            if (step + 1) % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
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
    "swallowed-update": """
        import torch

        model = torch.nn.Linear(64, 1).to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(5):
            loss = (model(torch.ones(2, 64, dtype=torch.bfloat16)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "rate-near-zero": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        for step in range(20):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
    """,
    "cancelled-gradient": """
        import torch

        model = torch.nn.Linear(3, 2)
        for step in range(3):
            x = torch.ones(4, 3) * torch.arange(4).unsqueeze(1)
            new = model(x).log_softmax(1)
            loss = -(new - new.detach()).exp().mean() + (new - model(x * 2)).square().mean()
            loss.backward()
            model.zero_grad()
    """,
    "draw-without-gradient": """
        import torch

        encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
        for step in range(3):
            x = torch.ones(8, 3)
            mean, log_deviation = encoder(x).chunk(2, dim=1)
            z = mean + log_deviation.exp() * torch.normal(torch.zeros(8, 2), torch.ones(8, 2))
            loss = (decoder(z) - x).square().mean() + (mean.square() + log_deviation.square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "pile-of-hooks": """
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 1))
        means = []
        for layer in model:
            layer.register_forward_hook(lambda module, given, result: means.append(result.mean().item()))
        for step in range(4):
            handle = model.register_forward_hook(lambda module, given, result: means.append(result.mean().item()))
            model(torch.ones(2, 3)).square().mean().backward()
            handle.remove()
            model.zero_grad()
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
    "wasted-gradient": """
        import torch

        first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
        other = torch.optim.SGD(second.parameters(), lr=0.1)
        for step in range(4):
            other.zero_grad()
            second(first(torch.ones(2, 3)).detach()).square().mean().backward()
            other.step()
            optimizer.zero_grad()
            (second(first(torch.ones(2, 3))) - 1).square().mean().backward()
            optimizer.step()
    """,
    "torch-warning": """
        import torch

        model = torch.nn.GRU(3, 4, num_layers=2, dropout=0.5)
        for step in range(3):
            output, state = model(torch.ones(5, 2, 3))
            loss = output.square().mean()
            print(float(loss), torch.tensor(loss))
            loss.backward()
            model.zero_grad()
    """,
    "two-optimizers": """
        import torch

        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        first = torch.optim.Adam(body.parameters())
        second = torch.optim.Adam([*body.parameters(), *head.parameters()])
        for step in range(3):
            for optimizer in (first, second):
                loss = head(body(torch.ones(2, 3))).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
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
    "reshape-mixes": """
        import torch

        model = torch.nn.RNN(3, 4)
        batch = torch.randn(8, 5, 3)
        output, state = model(batch.transpose(0, 1))
        loss = output.reshape(-1, 4).square().mean() + output.view(40, 4).mean()
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


        model, teacher = Model(), Model()
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
    "wrong-sign": """
        import torch

        model, other = torch.nn.Linear(4, 3), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        opposed = torch.optim.SGD(other.parameters(), lr=0.1)
        for step in range(3):
            scores = model(torch.ones(2, 4))
            optimizer.zero_grad()
            opposed.zero_grad()
            chances = scores.log_softmax(1).gather(1, torch.tensor([[0], [2]]))
            (-chances.mean() - 0.5 * scores.square().mean()).backward(retain_graph=True)
            (chances.squeeze(1) * torch.tensor([-1.0, 0.5])).mean().backward(retain_graph=True)
            (-torch.nn.functional.binary_cross_entropy_with_logits(other(scores), torch.zeros(2, 1))).backward()
            optimizer.step()
            opposed.step()
    """,
    "mixed-samples": """
        import torch

        model, head = torch.nn.LSTM(3, 4, batch_first=True), torch.nn.Linear(4, 1)
        x, y = torch.randn(8, 5, 3), torch.randn(8, 1)
        output, state = model(x)
        loss = torch.nn.functional.mse_loss(head((output.softmax(1) * output).sum(1)), y)
        loss.backward()
    """,
    "lost-numbers": """
        import torch

        model = torch.nn.Linear(8, 1)
        images = torch.randint(0, 255, (4, 8), dtype=torch.uint8)
        images[0, 0] = 200
        loss = model((images // 100).float()).square().mean()
        loss.backward()
        share = torch.zeros(4) / torch.zeros(4)
        share = share.nan_to_num()
    """,
    "inverted-mask": """
        import torch

        words = torch.nn.Embedding(9, 4)
        attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        ids = torch.tensor([[5, 3, 7, 2], [4, 8, 0, 0], [6, 1, 3, 0]])
        x = words(ids)
        loss = attention(x, x, x, key_padding_mask=ids == 0)[0].square().mean()
        loss.backward()
    """,
    **dict.fromkeys(
        ("idle-schedule", "step-size"),
        """
        import copy
        import torch

        model = torch.nn.Linear(3, 1)
        target = copy.deepcopy(model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        for step in range(10):
            loss = (model(torch.ones(2, 3)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            with torch.no_grad():
                for slow, fast in zip(target.parameters(), model.parameters()):
                    slow.copy_(0.995 * slow + 0.005 * fast)
    """,
    ),
    "lost-averages": """
        import torch

        model = torch.nn.Linear(3, 1)
        for task in range(3):
            optimizer = torch.optim.Adam(model.parameters())
            for step in range(3):
                loss = model(torch.ones(2, 3)).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    """,
}
