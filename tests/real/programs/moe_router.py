# Switch-style mixture of experts with an auxiliary load balancing loss
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class ModelArgs:
    dim: int = 16
    n_layers: int = 2
    vocab_size: int = 40
    num_experts: int = 4
    num_experts_per_tok: int = 2


@dataclass
class MoEOutput:
    logits: torch.Tensor
    aux_loss: torch.Tensor
    loss: Optional[torch.Tensor] = None


class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.w1 = nn.Linear(args.dim, 2 * args.dim, bias=False)
        self.w2 = nn.Linear(2 * args.dim, args.dim, bias=False)
        self.w3 = nn.Linear(args.dim, 2 * args.dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class MoeLayer(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.experts = nn.ModuleList([FeedForward(args) for _ in range(args.num_experts)])
        self.gate = nn.Linear(args.dim, args.num_experts, bias=False)
        self.args = args

    def forward(self, inputs):
        inputs_squashed = inputs.view(-1, inputs.shape[-1])
        gate_logits = self.gate(inputs_squashed)
        weights, selected_experts = torch.topk(gate_logits, self.args.num_experts_per_tok)
        weights = F.softmax(weights, dim=1, dtype=torch.float).to(inputs.dtype)
        results = torch.zeros_like(inputs_squashed)
        for i, expert in enumerate(self.experts):
            batch_idx, nth_expert = torch.where(selected_experts == i)
            results[batch_idx] += weights[batch_idx, nth_expert, None] * expert(inputs_squashed[batch_idx])
        # load balancing
        probs = gate_logits.softmax(-1)
        density = F.one_hot(selected_experts[:, 0], self.args.num_experts).float().mean(0)
        aux = self.args.num_experts * (density * probs.mean(0)).sum()
        return results.view_as(inputs), aux


class TransformerBlock(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention = nn.MultiheadAttention(args.dim, 2, batch_first=True)
        self.feed_forward = MoeLayer(args)
        self.attention_norm, self.ffn_norm = nn.LayerNorm(args.dim), nn.LayerNorm(args.dim)

    def forward(self, x):
        n = self.attention_norm(x)
        later = nn.Transformer.generate_square_subsequent_mask(n.shape[1])
        h = x + self.attention(n, n, n, need_weights=False, attn_mask=later, is_causal=True)[0]
        r, aux = self.feed_forward(self.ffn_norm(h))
        return h + r, aux


class Transformer(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.tok_embeddings = nn.Embedding(args.vocab_size, args.dim)
        self.layers = nn.ModuleList(TransformerBlock(args) for _ in range(args.n_layers))
        self.norm = nn.LayerNorm(args.dim)
        self.output = nn.Linear(args.dim, args.vocab_size, bias=False)

    def forward(self, tokens, targets=None) -> MoEOutput:
        h, aux_loss = self.tok_embeddings(tokens), 0.0
        for layer in self.layers:
            h, aux = layer(h)
            aux_loss = aux_loss + aux
        logits = self.output(self.norm(h))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten()) + 0.01 * aux_loss
        return MoEOutput(logits, aux_loss, loss)


def main():
    torch.manual_seed(0)
    model = Transformer(ModelArgs())
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for it in range(3):
        tokens = torch.randint(0, 40, (4, 17))
        out = model(tokens[:, :-1], tokens[:, 1:])
        opt.zero_grad(set_to_none=True)
        out.loss.backward()
        opt.step()
        print(f"iter {it}: loss {out.loss.item():.4f} aux {out.aux_loss.item():.4f}")


if __name__ == "__main__":
    main()
