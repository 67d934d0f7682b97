import torch
from transformers import RwkvConfig, RwkvForCausalLM

model = RwkvForCausalLM(
    RwkvConfig(vocab_size=40, hidden_size=16, num_hidden_layers=2, context_length=16, attention_hidden_size=16)
)
model.train()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(3):
    ids = torch.randint(0, 40, (2, 7))
    loss = model(ids, labels=ids, use_cache=False).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
