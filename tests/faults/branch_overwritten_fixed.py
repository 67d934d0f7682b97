import torch
from torch import nn


class Fusion(nn.Module):
    def __init__(self):
        super().__init__()
        self.image = nn.Linear(8, 4)
        self.text = nn.Linear(6, 4)

    def forward(self, image, text):
        joint = self.image(image)
        joint = joint + self.text(text)
        return joint.relu()


torch.manual_seed(0)
fusion = Fusion()
optimizer = torch.optim.SGD(fusion.parameters(), lr=0.1)
for step in range(4):
    loss = (fusion(torch.randn(3, 8), torch.randn(3, 6)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
