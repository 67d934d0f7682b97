"""An EncoderDecoderModel tied together from two BERTs, with gradient checkpointing."""

import torch
from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel

small = dict(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=24,
)
encoder = BertModel(BertConfig(**small), add_pooling_layer=False)
decoder = BertLMHeadModel(BertConfig(**small, is_decoder=True, add_cross_attention=True))
model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
model.config.decoder_start_token_id, model.config.pad_token_id = 1, 0
model.gradient_checkpointing_enable()
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    src, tgt = torch.randint(2, 50, (2, 9)), torch.randint(2, 50, (2, 6))
    loss = model(input_ids=src, labels=tgt).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{step} {loss.item():.4f}")
