"""The interactive page and the memory table in a run of Weights & Biases."""

import torch
import wandb

import gradviz

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
with wandb.init(project="gradviz") as run:
    with gradviz.record():
        loss = net(torch.randn(16, 4)).square().mean()
        graph = gradviz.walk(loss)
        saved = list(gradviz.saved(loss))
    rows = [list(row.values()) for row in saved]
    run.log(
        {
            "graph": wandb.Html(graph.to_html(), inject=False),
            "memory": wandb.Table(columns=list(saved[0]), data=rows),
        }
    )
    loss.backward()
