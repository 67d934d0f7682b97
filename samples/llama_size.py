"""A language model with 6.7 billion parameters, on any machine, in seconds.

Nothing here is computed and nothing is allocated. Under `FakeTensorMode` a tensor has a shape, a dtype and a device but
no numbers, and every operation only works out the shape of its result. Autograd records as always, so the graph, and
with it the memory that a training step would need, is the real one.

`--device meta` does the same with the older meta device. It takes another path inside attention, one that keeps a
(length x length) matrix for every head, so its memory is not what a CPU or GPU would need. Prefer the default.

The model is that of the paper "LLaMA: Open and Efficient Foundation Language Models" (Touvron and others, 2023):
RMSNorm before each half of a block, rotary position embedding, attention, and a feed-forward half gated by SiLU.
`--checkpoint` keeps only the input of every block and computes the rest again in the backward pass.
`--real` runs a small version with numbers.

Try:
    python samples/llama_size.py
    gradviz tree samples/llama_size.py
    gradviz saved samples/llama_size.py
    gradviz saved samples/llama_size.py -- --checkpoint
    gradviz render samples/llama_size.py
"""

import argparse
from contextlib import nullcontext

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser(description="A Llama-sized transformer that allocates nothing.")
parser.add_argument("--batch", type=int, default=1)
parser.add_argument("--length", type=int, help="positions in a sequence (4096, or 32 with --real)")
parser.add_argument("--layers", type=int, help="blocks (32, or 2 with --real)")
parser.add_argument("--width", type=int, help="(4096, or 64 with --real)")
parser.add_argument("--heads", type=int, help="(32, or 4 with --real)")
parser.add_argument("--feed-forward", type=int, help="width inside the feed-forward half (11008, or 160 with --real)")
parser.add_argument("--vocabulary", type=int, help="(32000, or 128 with --real)")
parser.add_argument("--checkpoint", action="store_true", help="recompute every block in the backward pass")
kind = parser.add_mutually_exclusive_group()
kind.add_argument("--device", choices=["fake", "meta"], default="fake", help="how to have no numbers")
kind.add_argument("--real", action="store_true", help="a small version with numbers, in float32")
arguments = parser.parse_args()

FULL = {"length": 4096, "layers": 32, "width": 4096, "heads": 32, "feed_forward": 11008, "vocabulary": 32000}
SMALL = {"length": 32, "layers": 2, "width": 64, "heads": 4, "feed_forward": 160, "vocabulary": 128}
for name, default in (SMALL if arguments.real else FULL).items():
    if getattr(arguments, name) is None:
        setattr(arguments, name, default)

torch.manual_seed(0)


def rotary_angles(length, head_width):
    """Cosine and sine of position * frequency, each of shape (length, head_width / 2)."""
    frequencies = 10000.0 ** (-torch.arange(0, head_width, 2) / head_width)
    angles = torch.outer(torch.arange(length).float(), frequencies)
    return angles.cos(), angles.sin()


def rotate(x, cosine, sine):
    """Turn each pair of channels by its angle; x has shape (batch, heads, length, head_width)."""
    first, second = x.chunk(2, dim=-1)
    cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return self.weight * (x.float() * scale).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x, cosine, sine):
        batch, length, width = x.shape
        query, key, value = (
            projection(x).view(batch, length, self.heads, -1).transpose(1, 2)
            for projection in (self.query, self.key, self.value)
        )
        query, key = rotate(query, cosine, sine), rotate(key, cosine, sine)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(mixed.transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.attention_norm = RMSNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = RMSNorm(width)
        self.feed_forward = FeedForward(width, inner)

    def forward(self, x, cosine, sine):
        x = x + self.attention(self.attention_norm(x), cosine, sine)
        return x + self.feed_forward(self.feed_forward_norm(x))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, inner, vocabulary):
        super().__init__()
        self.head_width = width // heads
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, inner) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, recompute=False):
        x = self.embedding(tokens)
        cosine, sine = rotary_angles(tokens.shape[1], self.head_width)
        for block in self.blocks:
            if recompute:
                x = checkpoint(block, x, cosine, sine, use_reentrant=False, preserve_rng_state=False)
            else:
                x = block(x, cosine, sine)
        return self.head(self.norm(x))


if arguments.real:
    without_numbers = nullcontext()
elif arguments.device == "meta":
    without_numbers = torch.device("meta")
else:
    without_numbers = FakeTensorMode()

with without_numbers:
    torch.set_default_dtype(torch.float32 if arguments.real else torch.bfloat16)
    model = Llama(arguments.layers, arguments.width, arguments.heads, arguments.feed_forward, arguments.vocabulary)
    torch.set_default_dtype(torch.float32)
    tokens = torch.randint(arguments.vocabulary, (arguments.batch, arguments.length + 1))
    logits = model(tokens[:, :-1], recompute=arguments.checkpoint)
    loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()

parameters = sum(parameter.numel() for parameter in model.parameters())
assert all(parameter.grad.shape == parameter.shape for parameter in model.parameters())
print(f"{arguments.layers} blocks of width {arguments.width}: {parameters} parameters, {parameters / 1e9:.2f} billion")
print(f"loss {loss.item():.4f}" if arguments.real else f"loss has no number: {type(loss).__name__} on {loss.device}")
