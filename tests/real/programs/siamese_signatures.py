"""Siamese network with contrastive loss, after the many signature verification tutorials."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.utils.data import DataLoader, Dataset


class Config:
    train_batch_size = 8
    train_number_epochs = 2
    size = 20


class SiameseNetworkDataset(Dataset):
    def __init__(self, length=32):
        self.length = length
        self.images = torch.rand(10, 1, Config.size, Config.size)

    def __getitem__(self, index):
        # we need to make sure approx 50% of images are in the same class
        same = random.randint(0, 1)
        a = random.randrange(10)
        b = a if same else (a + random.randrange(1, 10)) % 10
        noise = 0.05 * torch.randn(2, 1, Config.size, Config.size)
        return self.images[a] + noise[0], self.images[b] + noise[1], torch.tensor([float(not same)])

    def __len__(self):
        return self.length


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(4),
            nn.ReflectionPad2d(1),
            nn.Conv2d(4, 8, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(8),
        )
        self.fc1 = nn.Sequential(
            nn.Linear(8 * Config.size * Config.size, 50),
            nn.ReLU(inplace=True),
            nn.Linear(50, 50),
            nn.ReLU(inplace=True),
            nn.Linear(50, 5),
        )

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        output = self.fc1(output)
        return output

    def forward(self, input1, input2):
        output1 = self.forward_once(input1)
        output2 = self.forward_once(input2)
        return output1, output2


class ContrastiveLoss(torch.nn.Module):
    """http://yann.lecun.com/exdb/publis/pdf/hadsell-chopra-lecun-06.pdf"""

    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        loss_contrastive = torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + (label) * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )
        return loss_contrastive


train_dataloader = DataLoader(SiameseNetworkDataset(), shuffle=True, batch_size=Config.train_batch_size)
net = SiameseNetwork()
criterion = ContrastiveLoss()
optimizer = optim.Adam(net.parameters(), lr=0.0005)

counter = []
loss_history = []
iteration_number = 0

for epoch in range(0, Config.train_number_epochs):
    for i, data in enumerate(train_dataloader, 0):
        img0, img1, label = data
        optimizer.zero_grad()
        output1, output2 = net(img0, img1)
        loss_contrastive = criterion(output1, output2, label)
        loss_contrastive.backward()
        optimizer.step()
        if i % 2 == 0:
            iteration_number += 2
            counter.append(iteration_number)
            loss_history.append(loss_contrastive.item())
    print("Epoch number {}\n Current loss {}\n".format(epoch, loss_contrastive.item()))
