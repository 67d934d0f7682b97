import torch
from transformers import ElectraConfig, ElectraForTokenClassification

config = ElectraConfig(
    vocab_size=50, embedding_size=16, hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48,
    max_position_embeddings=24, num_labels=4,
)  # fmt: skip
model = ElectraForTokenClassification(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    ids, tags = torch.randint(0, 50, (2, 10)), torch.randint(0, 4, (2, 10))
    loss = model(ids, labels=tags).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
