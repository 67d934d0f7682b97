import torch
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

text = CLIPTextConfig(
    vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=12,
    bos_token_id=0, eos_token_id=49, projection_dim=8,
)  # fmt: skip
vision = CLIPVisionConfig(
    hidden_size=16,
    intermediate_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    image_size=16,
    patch_size=8,
    projection_dim=8,
)
model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8))
opt = torch.optim.AdamW(model.parameters(), lr=5e-5, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.2)
for step in range(3):
    ids = torch.randint(1, 49, (3, 8))
    ids[:, -1] = 49
    outputs = model(input_ids=ids, pixel_values=torch.rand(3, 3, 16, 16), return_loss=True)
    outputs.loss.backward()
    opt.step()
    opt.zero_grad()
    print(step, outputs.loss.item())
