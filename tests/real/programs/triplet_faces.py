"""FaceNet-like embedding with online hard triplet mining."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class EmbeddingNet(nn.Module):
    def __init__(self):
        super(EmbeddingNet, self).__init__()
        self.convnet = nn.Sequential(
            nn.Conv2d(1, 8, 5),
            nn.PReLU(),
            nn.MaxPool2d(2, stride=2),
            nn.Conv2d(8, 16, 5),
            nn.PReLU(),
            nn.MaxPool2d(2, stride=2),
        )
        self.fc = nn.Sequential(nn.Linear(16 * 4 * 4, 32), nn.PReLU(), nn.Linear(32, 2))

    def forward(self, x):
        output = self.convnet(x)
        output = output.view(output.size()[0], -1)
        output = self.fc(output)
        return output

    def get_embedding(self, x):
        return self.forward(x)


class TripletNet(nn.Module):
    def __init__(self, embedding_net):
        super(TripletNet, self).__init__()
        self.embedding_net = embedding_net

    def forward(self, x1, x2, x3):
        output1 = self.embedding_net(x1)
        output2 = self.embedding_net(x2)
        output3 = self.embedding_net(x3)
        return output1, output2, output3


class TripletLoss(nn.Module):
    def __init__(self, margin):
        super(TripletLoss, self).__init__()
        self.margin = margin

    def forward(self, anchor, positive, negative, size_average=True):
        distance_positive = (anchor - positive).pow(2).sum(1)
        distance_negative = (anchor - negative).pow(2).sum(1)
        losses = F.relu(distance_positive - distance_negative + self.margin)
        return losses.mean() if size_average else losses.sum()


def fit(train_loader, model, loss_fn, optimizer, scheduler, n_epochs, log_interval=1):
    for epoch in range(n_epochs):
        model.train()
        for batch_idx, data in enumerate(train_loader):
            optimizer.zero_grad()
            outputs = model(*data)
            loss = loss_fn(*outputs)
            loss.backward()
            optimizer.step()
            if batch_idx % log_interval == 0:
                print("Train: [{}/{}]\tLoss: {:.6f}".format(batch_idx, len(train_loader), loss.item()))
        scheduler.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--margin", type=float, default=1.0)
    parser.add_argument("--epochs", type=int, default=1)
    opt = parser.parse_args()
    torch.manual_seed(0)
    net = TripletNet(EmbeddingNet())
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, gamma=0.1, last_epoch=-1)
    loader = [tuple(torch.rand(4, 1, 28, 28) for _ in range(3)) for _ in range(3)]
    fit(loader, net, TripletLoss(opt.margin), optimizer, scheduler, opt.epochs)
