import torch
import torch.nn as nn


class Seg(nn.Module):
    def __init__(self):
        super().__init__()
        self.image_encoder = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.mask_decoder = nn.Conv2d(8, 1, 3, padding=1)

    def forward(self, x):
        return self.mask_decoder(self.image_encoder(x))


torch.manual_seed(0)
sam = Seg()
for p in sam.image_encoder.parameters():
    p.requires_grad = False
optimizer = torch.optim.AdamW(sam.parameters(), lr=1e-2)
img = torch.rand(8, 3, 16, 16)
mask = (img.mean(1, keepdim=True) > 0.5).float()
for epoch in range(30):
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(sam(img), mask)
    loss.backward()
    optimizer.step()
    if epoch % 10 == 9:
        print(epoch, loss.item())
