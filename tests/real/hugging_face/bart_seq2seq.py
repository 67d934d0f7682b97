import torch
from transformers import BartConfig, BartForConditionalGeneration

cfg = BartConfig(
    vocab_size=60, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=32, decoder_ffn_dim=32, max_position_embeddings=24,
)  # fmt: skip
bart = BartForConditionalGeneration(cfg)
opt = torch.optim.AdamW(bart.parameters(), lr=3e-5)
for step in range(3):
    src, tgt = torch.randint(3, 60, (2, 9)), torch.randint(3, 60, (2, 7))
    out = bart(input_ids=src, attention_mask=torch.ones_like(src), labels=tgt)
    opt.zero_grad()
    out.loss.backward()
    opt.step()
    print(step, out.loss.item())
