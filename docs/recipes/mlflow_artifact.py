"""The graph and the findings as artifacts of an MLflow run."""

import mlflow
import torch

import gradviz

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
with mlflow.start_run():
    with gradviz.record():
        loss = net(torch.randn(16, 4)).square().mean()
        findings = gradviz.check(loss, model=net)
        mlflow.log_text(gradviz.walk(loss).to_html(), "graph.html")
    mlflow.log_text(str(findings), "findings.txt")
    mlflow.log_metric("findings", len(findings))
    loss.backward()
