"""Scripts about which `check` says nothing, by a word for what could be said."""

from __future__ import annotations

LEFT_ALONE: dict[str, str] = {
    "cancelled-gradient": """
        import torch

        model = torch.nn.Linear(3, 2)
        for step in range(3):
            x = torch.ones(4, 3) * torch.arange(4).unsqueeze(1)
            old, new = model(x).log_softmax(1), model(x).log_softmax(1)
            loss = -(new - old).exp().mean()
            loss.backward()
            model.zero_grad()
    """,
    "double-backward": """
        import torch

        w = torch.ones(3, requires_grad=True)
        score = torch.tanh(w).sum()
        (slope,) = torch.autograd.grad(score, w, create_graph=True)
        penalty = slope.square().sum()
        penalty.backward()
    """,
    "draw-without-gradient": """
        import torch

        encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
        optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
        for step in range(3):
            x = torch.ones(8, 3)
            mean, log_deviation = encoder(x).chunk(2, dim=1)
            z = torch.normal(mean, log_deviation.exp())
            loss = (decoder(z) - x).square().mean() + (mean.square() + log_deviation.square()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "duplicate-saved": """
        import torch

        w = torch.ones(64, 64, requires_grad=True)
        x = torch.exp(w).t()
        y = x.contiguous()
        loss = (x.sin() + y.sin()).sum()
        loss.backward()
    """,
    "first-order": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.ones(2, 3)).square().mean()
            (gradient,) = torch.autograd.grad(loss, model.weight)
            fast = model.weight - 0.1 * gradient
            meta_loss = (torch.ones(2, 3) @ fast.T + model.bias).square().mean()
            optimizer.zero_grad()
            meta_loss.backward()
            optimizer.step()
    """,
    "graph-break": """
        import torch


        def step(x):
            y = x.sin()
            torch._dynamo.graph_break()
            return y.cos().sum()


        x = torch.ones(3, requires_grad=True)
        loss = torch.compile(step, backend="aot_eager")(x)
        loss.backward()
    """,
    "hooks-present": """
        import torch

        w = torch.ones(3, requires_grad=True)
        w.register_hook(lambda gradient: gradient * 2)
        loss = (w * w).sum()
        loss.backward()
    """,
    "idle-schedule": """
        import torch

        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        for step in range(10):
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "inverted-mask": """
        import torch

        words = torch.nn.Embedding(9, 4)
        attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        ids = torch.tensor([[5, 3, 7, 0], [4, 8, 0, 0], [6, 1, 3, 0]])
        x = words(ids)
        loss = attention(x, x, x, key_padding_mask=ids != 0)[0].square().mean()
        loss.backward()
    """,
    "large-saved": """
        import torch

        x = torch.ones(2048, 2048, requires_grad=True)
        loss = torch.exp(x).sum()
        loss.backward()
    """,
    "lost-averages": """
        import torch

        model = torch.nn.Linear(3, 1)
        for step in range(4):
            optimizer = torch.optim.Adam(model.parameters())
            loss = model(torch.ones(2, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "lost-numbers": """
        import torch

        model = torch.nn.Linear(3, 1)
        stored = torch.rand(8, 3)
        for step in range(4):
            batch = stored[:4]
            batch += 0.1
            loss = model(batch).square().mean()
            loss.backward()
    """,
    "mixed-samples": """
        import torch

        model, head = torch.nn.LSTM(3, 4), torch.nn.Linear(4, 1)
        x, y = torch.randn(8, 5, 3), torch.randn(8, 1)
        output, state = model(x)
        loss = torch.nn.functional.mse_loss(head(output[:, -1]), y)
        loss.backward()
    """,
    "padding-counted": """
        import torch

        model = torch.nn.Linear(3, 1)
        mask = (torch.arange(6) < torch.tensor([[6], [4], [2]])).float()
        error = model(torch.ones(3, 6, 3)).squeeze(2).square()
        loss = (error * mask).mean()
        loss.backward()
    """,
    "paid-frozen": """
        import torch

        embedding, head = torch.nn.Embedding(100, 64), torch.nn.Linear(64, 1)
        body = torch.nn.Linear(64, 64).requires_grad_(False)
        model = torch.nn.Sequential(embedding, body, torch.nn.ReLU(), head)
        optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.1)
        loss = model(torch.arange(100)).square().mean()
        loss.backward()
        optimizer.step()
    """,
    "pile-of-hooks": """
        import torch

        model = torch.nn.Linear(3, 1)
        means = []
        for step in range(4):
            model.register_forward_hook(lambda module, given, result: means.append(result.mean().item()))
            model(torch.ones(2, 3)).square().mean().backward()
            model.zero_grad()
    """,
    "requires-grad-input": """
        import torch

        model = torch.nn.Linear(3, 1)
        x = torch.ones(2, 3, requires_grad=True)
        loss = model(x).sum()
        loss.backward()
    """,
    "reshape-mixes": """
        import torch

        model = torch.nn.RNN(3, 4)
        batch = torch.randn(8, 5, 3)
        output, state = model(batch.view(5, 8, 3))
        loss = output.square().mean()
        loss.backward()
    """,
    "saturated": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(256, 256), torch.nn.Tanh())))
        model.append(torch.nn.Linear(256, 1))
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)
        loss = model(torch.randn(8, 256)).square().mean()
        loss.backward()
    """,
    "saved-cast": """
        import torch

        w = torch.ones(64, 64, requires_grad=True)
        x = torch.exp(w)
        half = x.to(torch.bfloat16)
        loss = half.sin().float().sum() + x.sin().sum()
        loss.backward()
    """,
    "seeded-again": """
        import torch

        model = torch.nn.Linear(3, 1)
        for step in range(6):
            torch.manual_seed(0)
            loss = model(torch.randn(2, 3)).square().mean()
            model.zero_grad()
            loss.backward()
    """,
    "step-size": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=50.0)
        for step in range(8):
            loss = model(torch.randn(8, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "swallowed-update": """
        import torch

        torch.manual_seed(0)
        model = torch.nn.Linear(64, 1).to(torch.bfloat16)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
        for step in range(5):
            loss = (model(torch.ones(2, 64, dtype=torch.bfloat16)) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "torch-warning": """
        import torch

        model = torch.nn.GRU(3, 4, dropout=0.5)
        for step in range(3):
            loss = model(torch.ones(5, 2, 3))[0].square().mean()
            loss.backward()
            model.zero_grad()
    """,
    "two-optimizers": """
        import torch

        body, head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        first = torch.optim.Adam(body.parameters())
        second = torch.optim.Adam([*body.parameters(), *head.parameters()])
        for step in range(3):
            loss = head(body(torch.ones(2, 3))).square().mean()
            first.zero_grad()
            second.zero_grad()
            loss.backward()
            first.step()
            second.step()
    """,
    "untied": """
        import torch

        embedding, head = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
        model = torch.nn.Sequential(embedding, head)
        head.weight = torch.nn.Parameter(embedding.weight.detach().clone())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = torch.nn.functional.cross_entropy(model(torch.arange(5)), torch.arange(5).roll(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "useless-labels": """
        import torch

        model = torch.nn.Linear(3, 4)
        labels = torch.tensor([0, 1, 2, 3, 0, 1])
        loss = torch.nn.functional.cross_entropy(model(torch.ones(6, 3)), labels, ignore_index=0)
        loss.backward()
    """,
    "vanishing-gradient": """
        import torch

        torch.manual_seed(0)
        layers = [layer for _ in range(12) for layer in (torch.nn.Linear(8, 8), torch.nn.Sigmoid())]
        model = torch.nn.Sequential(*layers)
        loss = model(torch.randn(4, 8)).square().mean()
        loss.backward()
    """,
    "wasted-gradient": """
        import torch

        first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(first.parameters(), lr=0.1)
        other = torch.optim.SGD(second.parameters(), lr=0.1)
        for step in range(4):
            other.zero_grad()
            second(first(torch.ones(2, 3))).square().mean().backward()
            other.step()
            optimizer.zero_grad()
            (second(first(torch.ones(2, 3))) - 1).square().mean().backward()
            optimizer.step()
    """,
    "wrong-sign": """
        import torch

        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            chances = model(torch.ones(2, 4)).log_softmax(1)
            loss = chances.gather(1, torch.tensor([[0], [2]])).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "zero-gradient": """
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1))
        torch.nn.init.constant_(model[0].bias, -100.0)
        loss = model(torch.ones(2, 3)).sum()
        loss.backward()
    """,
}
