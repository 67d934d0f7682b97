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

other = net(torch.randn(32, 4)).square().sum()
changes = pandas.DataFrame(gradviz.diff(loss, other))  # added, removed, changed
by_rank = pandas.DataFrame(gradviz.merge([loss, other]))  # what some ranks have alone

print(modules[["module", "parameters", "FLOPs"]])
print(gradients.sort_values("norm")[["leaf", "norm"]])
print(nodes["op"].value_counts())
print(path[["name", "op"]])
print(changes.groupby("change")["op"].unique())
print(by_rank[["ranks", "op", "what"]])
