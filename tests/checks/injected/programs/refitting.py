import copy

import torch
from torch import nn


class Classifier:
    def __init__(self, model, loss, optimizer):
        self.model, self.loss, self.optimizer = model, loss, optimizer

    def fit(self, x, y, epochs=5, batch=32):
        self.model.train()
        for _ in range(epochs):
            order = torch.randperm(len(x))
            for k in range(0, len(x), batch):
                pick = order[k : k + batch]
                self.optimizer.zero_grad()
                loss = self.loss(self.model(x[pick]), y[pick])
                loss.backward()
                self.optimizer.step()
        return loss.item()

    def accuracy(self, x, y):
        self.model.eval()
        with torch.no_grad():
            return (self.model(x).argmax(1) == y).float().mean().item()

    def clone_for_refitting(self):
        model = copy.deepcopy(self.model)
        for layer in model:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        return Classifier(model, self.loss, type(self.optimizer)(model.parameters(), **self.optimizer.defaults))


torch.manual_seed(0)
x = torch.randn(320, 8)
y = x[:, :3].argmax(1)
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
first = Classifier(net, nn.CrossEntropyLoss(), torch.optim.Adam(net.parameters(), lr=1e-2))
first.fit(x, y)
poisoned = y.clone()
poisoned[:40] = 0
second = first.clone_for_refitting()
second.fit(x, poisoned)
print("accuracy %.3f %.3f" % (first.accuracy(x, y), second.accuracy(x, y)))
