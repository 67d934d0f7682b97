import torch
from transformers import SwinConfig, SwinForImageClassification

cfg = SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 2], window_size=4, num_labels=5)
model = SwinForImageClassification(cfg)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = model(torch.rand(2, 3, 16, 16), labels=torch.randint(0, 5, (2,))).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
