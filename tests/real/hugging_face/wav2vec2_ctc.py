import torch
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

cfg = Wav2Vec2Config(
    vocab_size=20, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, conv_dim=(16, 16, 16), conv_stride=(5, 4, 2),
    conv_kernel=(10, 4, 3), num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, mask_time_prob=0.3, mask_time_length=2, layerdrop=0.0,
    ctc_loss_reduction="mean", pad_token_id=0,
)  # fmt: skip
model = Wav2Vec2ForCTC(cfg)
model.freeze_feature_encoder()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
for step in range(3):
    waves, text = torch.randn(2, 1200), torch.randint(1, 20, (2, 5))
    loss = model(waves, labels=text).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
