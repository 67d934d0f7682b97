import torch
from transformers import DistilBertConfig, DistilBertForQuestionAnswering

model = DistilBertForQuestionAnswering(
    DistilBertConfig(vocab_size=50, dim=24, hidden_dim=48, n_layers=3, n_heads=2, max_position_embeddings=24)
)
optim = torch.optim.AdamW(model.parameters(), lr=5e-5)
model.train()
for step in range(3):
    input_ids = torch.randint(0, 50, (2, 14))
    outputs = model(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        start_positions=torch.tensor([1, 4]),
        end_positions=torch.tensor([3, 6]),
    )
    loss = outputs[0]
    optim.zero_grad()
    loss.backward()
    optim.step()
    print("loss", loss.item())
