import torch
import torch.nn as nn


class LoraLinear(nn.Module):
    def __init__(self, base, r=4):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) * 0.02)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.lora_A.t() @ self.lora_B.t()


class Tiny(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(30, 16)
        self.q_proj = LoraLinear(nn.Linear(16, 16))
        self.head = nn.Linear(16, 30)

    def forward(self, ids):
        return self.head(torch.relu(self.q_proj(self.emb(ids))))


def prepare_for_training(model, is_trainable):
    for n, p in model.named_parameters():
        p.requires_grad = is_trainable and "lora_" in n
    return model


torch.manual_seed(0)
model = prepare_for_training(Tiny(), is_trainable=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(0, 30, (8, 12))
for step in range(30):
    logits = model(ids[:, :-1])
    loss = nn.functional.cross_entropy(logits.reshape(-1, 30), ids[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
