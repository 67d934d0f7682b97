import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(vocab_size=64, n_positions=32, n_embd=32, n_layer=3, n_head=2)
model = GPT2LMHeadModel(config)
model.train()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for i in range(3):
    batch = torch.randint(0, 64, (2, 16))
    outputs = model(batch, labels=batch)
    loss = outputs[0]
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(i, loss.item())
