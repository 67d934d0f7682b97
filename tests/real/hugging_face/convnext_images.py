import torch
from transformers import ConvNextConfig, ConvNextForImageClassification

model = ConvNextForImageClassification(
    ConvNextConfig(patch_size=2, hidden_sizes=[8, 12, 16, 20], depths=[2, 2, 3, 2], num_labels=6, image_size=32)
)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(3):
    out = model(pixel_values=torch.rand(2, 3, 32, 32), labels=torch.randint(0, 6, (2,)))
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print("loss", out.loss.item())
