"""LoRA from scratch: freeze a small pretrained classifier, train low-rank updates of its linear layers."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALayer:
    def __init__(self, r, lora_alpha, lora_dropout):
        self.r = r
        self.lora_alpha = lora_alpha
        self.lora_dropout = nn.Dropout(p=lora_dropout) if lora_dropout > 0 else (lambda x: x)


class LoRALinear(nn.Linear, LoRALayer):
    def __init__(self, in_features, out_features, r=4, lora_alpha=8, lora_dropout=0.05, **kwargs):
        nn.Linear.__init__(self, in_features, out_features, **kwargs)
        LoRALayer.__init__(self, r, lora_alpha, lora_dropout)
        self.lora_A = nn.Parameter(self.weight.new_zeros((r, in_features)))
        self.lora_B = nn.Parameter(self.weight.new_zeros((out_features, r)))
        self.scaling = self.lora_alpha / self.r
        self.weight.requires_grad = False
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        result = F.linear(x, self.weight, bias=self.bias)
        return result + (self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T) * self.scaling


def mark_only_lora_as_trainable(model):
    for n, p in model.named_parameters():
        if "lora_" not in n:
            p.requires_grad = False


def inject(module, **kwargs):
    for name, child in module.named_children():
        if isinstance(child, nn.Linear):
            new = LoRALinear(child.in_features, child.out_features, **kwargs)
            new.load_state_dict(child.state_dict(), strict=False)
            setattr(module, name, new)
        else:
            inject(child, **kwargs)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(dim, dim) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm(x)
        a = F.scaled_dot_product_attention(self.q_proj(h), self.k_proj(h), self.v_proj(h))
        x = x + self.o_proj(a)
        return x + self.mlp(x)


class Classifier(nn.Module):
    def __init__(self, dim=16, depth=3):
        super().__init__()
        self.embed = nn.Embedding(50, dim)
        self.blocks = nn.ModuleList(Block(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 2)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1))


torch.manual_seed(42)
base = Classifier()
inject(base, r=2)
mark_only_lora_as_trainable(base)
trainable = sum(p.numel() for p in base.parameters() if p.requires_grad)
print(f"trainable params: {trainable} || all params: {sum(p.numel() for p in base.parameters())}")
optimizer = torch.optim.AdamW([p for p in base.parameters() if p.requires_grad], lr=3e-3)
for step in range(3):
    ids, y = torch.randint(0, 50, (4, 12)), torch.randint(0, 2, (4,))
    loss = F.cross_entropy(base(ids), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(f"step {step} | loss {loss.item():.4f}")
