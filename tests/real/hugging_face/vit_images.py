import torch
from transformers import ViTConfig, ViTForImageClassification

cfg = ViTConfig(
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    image_size=16,
    patch_size=4,
    num_labels=5,
)
vit = ViTForImageClassification(cfg)
opt = torch.optim.AdamW(vit.parameters(), lr=1e-4)
for epoch in range(3):
    pixel_values, labels = torch.rand(2, 3, 16, 16), torch.randint(0, 5, (2,))
    out = vit(pixel_values=pixel_values, labels=labels)
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(epoch, out.loss.item())
