import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    vocab_size=60, num_mel_bins=8, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=20, max_target_positions=16, decoder_start_token_id=1,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, suppress_tokens=None, begin_suppress_tokens=None,
)  # fmt: skip
model = WhisperForConditionalGeneration(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
for step in range(3):
    batch = {"input_features": torch.randn(2, 8, 40), "labels": torch.randint(3, 60, (2, 6))}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step}: {loss.item():.3f}")
