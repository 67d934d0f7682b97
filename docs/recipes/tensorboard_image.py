"""The graph as an image in TensorBoard, beside the loss."""

import io

import numpy
import torch
from PIL import Image
from torch.utils.tensorboard import SummaryWriter

import gradviz

net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with SummaryWriter("runs/net") as writer:
    for step in range(3):
        loss = net(torch.randn(16, 4)).square().mean()
        if step == 0:
            image = Image.open(io.BytesIO(gradviz.walk(loss).to_png())).convert("RGB")
            writer.add_image("graph", numpy.asarray(image), dataformats="HWC")
        writer.add_scalar("loss", loss.item(), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
