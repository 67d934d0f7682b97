"""skorch: an estimator in a pipeline of scikit-learn makes the model and holds it."""

import numpy
import torch
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(20, 10)
        self.spare = nn.Linear(10, 10)
        self.out = nn.Linear(10, 2)

    def forward(self, x):
        return torch.softmax(self.out(torch.relu(self.hidden(x))), dim=-1)


def main():
    torch.manual_seed(0)
    rows = numpy.random.RandomState(0).randn(64, 20).astype("float32")
    labels = (rows.sum(1) > 0).astype("int64")
    model = make_pipeline(StandardScaler(), NeuralNetClassifier(Net, max_epochs=4, lr=0.1, verbose=0))
    model.fit(rows, labels)  # backward
    print("losses", [loss.hex() for loss in model[-1].history[:, "train_loss"]])
    print("validation", [loss.hex() for loss in model[-1].history[:, "valid_loss"]])


main()
