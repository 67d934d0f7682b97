"""A small GPT: a stack of equal blocks that predicts the next token.

Each block has two halves, and both add to what came in. Attention lets every position look at the ones before it. The
feed-forward half works on each position alone. Before each half the numbers are normalised. All blocks have the same
structure with their own parameters, so a picture of 48 or 200 of them is readable only when equal blocks are folded.

The output layer uses the token embedding's weight (the two are tied), so that one parameter is used at both ends of the
graph and gets a gradient from each.

The defaults are tiny. `--layers 12 --width 768 --heads 12 --length 1024 --vocabulary 50257` is the size of GPT-2 small;
`--layers 48` and `--layers 200` are good for trying how a tool copes.

Try:
    python samples/gpt.py
    gradviz render samples/gpt.py
    gradviz render samples/gpt.py --depth all
    gradviz render samples/gpt.py -- --layers 48
    gradviz tree samples/gpt.py -- --layers 200
    gradviz saved samples/gpt.py
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser(description="A small GPT in plain PyTorch.")
parser.add_argument("--layers", type=int, default=4)
parser.add_argument("--width", type=int, default=32)
parser.add_argument("--heads", type=int, default=4)
parser.add_argument("--length", type=int, default=16, help="positions in a sequence")
parser.add_argument("--vocabulary", type=int, default=64)
parser.add_argument("--batch", type=int, default=2)
arguments = parser.parse_args()

torch.manual_seed(0)


class Attention(nn.Module):
    """Causal self-attention, written out."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=-1)
        return self.output((weights @ value).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x):
        return self.narrow(nn.functional.gelu(self.widen(x)))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.feed_forward_norm(x))


class GPT(nn.Module):
    def __init__(self, layers, width, heads, length, vocabulary):
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, width)
        self.position_embedding = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token_embedding.weight
        nn.init.normal_(self.token_embedding.weight, std=0.02)

    def forward(self, tokens):
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token_embedding(tokens) + self.position_embedding(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


model = GPT(arguments.layers, arguments.width, arguments.heads, arguments.length, arguments.vocabulary)
tokens = torch.randint(arguments.vocabulary, (arguments.batch, arguments.length + 1))

logits = model(tokens[:, :-1])
loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
loss.backward()

parameters = sum(parameter.numel() for parameter in model.parameters())
assert all(parameter.grad is not None for parameter in model.parameters())
print(f"{arguments.layers} blocks, {parameters} parameters, loss {loss.item():.4f}")
