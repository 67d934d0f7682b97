"""Memory and gradients as data frames."""

import pandas
import torch

import gradviz

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
loss = net(torch.randn(16, 4)).square().mean()

modules = pandas.DataFrame(gradviz.summary(net, (16, 4)))
gradients = pandas.DataFrame(gradviz.flow(loss))
nodes = pandas.DataFrame(gradviz.walk(loss).nodes)  # every fact of every node

path = pandas.DataFrame(gradviz.why(loss, net[0].weight).path)  # step by step

difference = gradviz.diff(loss, net(torch.randn(32, 4)).square().sum())
added = pandas.DataFrame([difference.after.nodes[node] for node in difference.added])
changed = pandas.DataFrame(
    {"op": difference.after.nodes[node.after].op, **change._asdict()}
    for node in difference.changed
    for change in node.changes
)

print(modules[["module", "parameters", "FLOPs"]])
print(gradients.sort_values("norm")[["leaf", "norm"]])
print(nodes["op"].value_counts())
print(path[["name", "op"]])
print(added["op"].tolist())
print(changed)
