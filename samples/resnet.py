"""A residual network: every block adds its input to its output.

Picture classifiers got deep when each block learned only a correction: `output = relu(correction(x) + x)`. In the graph
that is a diamond, the block on one side and the shortcut on the other, again and again. The shortcut is also why the
gradient reaches the first layers: there is a way down that no convolution touches.

Two kinds of blocks. A basic block has two 3x3 convolutions (depth 18 and 34). A bottleneck has three: 1x1 to make it
narrow, 3x3, and 1x1 to make it wide again (depth 50, 101, 152). Where the size changes, the shortcut gets a 1x1
convolution.

The default is a narrow depth 18 on small pictures, quick on any machine. `--depth 50 --width 64 --classes 1000` is the
network of the paper "Deep Residual Learning for Image Recognition" (He and others, 2015).

Try:
    python samples/resnet.py
    gradviz render samples/resnet.py
    gradviz render samples/resnet.py --focus stages.1
    gradviz tree samples/resnet.py -- --depth 50
    gradviz saved samples/resnet.py -- --depth 50 --width 64 --size 128
"""

import argparse

import torch
from torch import nn

BLOCKS_PER_STAGE = {
    10: (1, 1, 1, 1),
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}

parser = argparse.ArgumentParser(description="A residual network in plain PyTorch.")
parser.add_argument("--depth", type=int, choices=sorted(BLOCKS_PER_STAGE), default=18)
parser.add_argument("--width", type=int, default=8, help="channels of the first stage (64 in the paper)")
parser.add_argument("--size", type=int, default=32, help="height and width of the pictures")
parser.add_argument("--batch", type=int, default=2)
parser.add_argument("--classes", type=int, default=10)
arguments = parser.parse_args()

torch.manual_seed(0)


def convolution(inputs, outputs, kernel, stride=1):
    """A convolution and its batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * self.expansion
        self.first = convolution(inputs, width, 3, stride)
        self.second = convolution(width, outputs, 3)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return torch.relu(self.second(hidden) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = width * self.expansion
        self.narrow = convolution(inputs, width, 1)
        self.middle = convolution(width, width, 3, stride)
        self.widen = convolution(width, outputs, 1)
        self.shortcut = shortcut(inputs, outputs, stride)

    def forward(self, x):
        hidden = torch.relu(self.narrow(x))
        hidden = torch.relu(self.middle(hidden))
        return torch.relu(self.widen(hidden) + self.shortcut(x))


def shortcut(inputs, outputs, stride):
    """Nothing where the shapes agree, else a 1x1 convolution that makes them agree."""
    return nn.Identity() if inputs == outputs and stride == 1 else convolution(inputs, outputs, 1, stride)


class ResNet(nn.Module):
    def __init__(self, depth, width, classes):
        super().__init__()
        block = BasicBlock if depth < 50 else Bottleneck
        self.stem = convolution(3, width, 7, stride=2)
        self.stages = nn.Sequential()
        channels = width
        for stage, count in enumerate(BLOCKS_PER_STAGE[depth]):
            blocks = nn.Sequential()
            for index in range(count):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width * 2**stage, stride))
                channels = width * 2**stage * block.expansion
            self.stages.append(blocks)
        self.classifier = nn.Linear(channels, classes)

    def forward(self, pictures):
        hidden = nn.functional.max_pool2d(torch.relu(self.stem(pictures)), 3, stride=2, padding=1)
        hidden = self.stages(hidden)
        return self.classifier(hidden.mean(dim=(2, 3)))


model = ResNet(arguments.depth, arguments.width, arguments.classes)
pictures = torch.randn(arguments.batch, 3, arguments.size, arguments.size)
labels = torch.randint(arguments.classes, (arguments.batch,))

logits = model(pictures)
loss = nn.functional.cross_entropy(logits, labels)
loss.backward()

parameters = sum(parameter.numel() for parameter in model.parameters())
assert all(parameter.grad is not None for parameter in model.parameters())
print(f"ResNet-{arguments.depth}: {parameters} parameters, loss {loss.item():.4f}")
