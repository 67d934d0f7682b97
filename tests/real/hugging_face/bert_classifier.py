"""Fine-tunes a BERT sequence classifier."""

import torch
from transformers import BertConfig, BertForSequenceClassification, get_linear_schedule_with_warmup

config = BertConfig(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=32,
    num_labels=3,
)
model = BertForSequenceClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, eps=1e-8)
scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=3)
for step in range(3):
    b_input_ids = torch.randint(0, 60, (2, 12))
    b_input_mask = torch.ones_like(b_input_ids)
    b_input_mask[0, 8:] = 0
    b_labels = torch.randint(0, 3, (2,))
    model.zero_grad()
    outputs = model(b_input_ids, token_type_ids=None, attention_mask=b_input_mask, labels=b_labels)
    loss, logits = outputs.loss, outputs.logits
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    print("  Batch {:>5,}  of  {:>5,}. loss {:.3f}".format(step, 3, loss.item()))
