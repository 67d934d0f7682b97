"""Memory and gradients as data frames."""

import pandas
import torch

import gradviz

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
loss = net(torch.randn(16, 4)).square().mean()

modules = pandas.DataFrame(gradviz.summary(net, (16, 4)))
gradients = pandas.DataFrame(gradviz.flow(loss))
nodes = pandas.DataFrame(gradviz.walk(loss).nodes)  # every fact of every node

print(modules[["module", "parameters", "FLOPs"]])
print(gradients.sort_values("norm")[["leaf", "norm"]])
print(nodes["op"].value_counts())
