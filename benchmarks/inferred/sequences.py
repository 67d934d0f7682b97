"""Networks that read sequences."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.inferred.case import Case, summed


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.resid_dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        parts = self.c_attn(x).split(width, dim=2)
        q, k, v = (
            part.view(n, length, self.heads, -1).transpose(1, 2) for part in parts
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(n, length, width)
        return self.resid_dropout(self.c_proj(y))  # type: ignore[no-any-return]


class MLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))  # type: ignore[no-any-return]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, 2)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = MLP(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))  # type: ignore[no-any-return]


class GPT(nn.Module):
    def __init__(self, layers: int = 3, width: int = 16) -> None:
        super().__init__()
        self.wte = nn.Embedding(20, width)
        self.wpe = nn.Embedding(8, width)
        self.drop = nn.Dropout(0.1)
        self.h = nn.ModuleList(Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 20, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.drop(self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1])))
        for block in self.h:
            x = block(x)
        return self.lm_head(self.ln_f(x))  # type: ignore[no-any-return]


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x: Tensor) -> Tensor:
    """Rotary positions."""
    first, second = x.chunk(2, dim=-1)
    angle = torch.arange(x.shape[-2])[:, None] / torch.arange(1, first.shape[-1] + 1)
    return torch.cat(
        (
            first * angle.cos() - second * angle.sin(),
            first * angle.sin() + second * angle.cos(),
        ),
        -1,
    )


class LlamaAttention(nn.Module):
    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        q, k, v = (
            w(x).view(n, length, self.heads, -1).transpose(1, 2)
            for w in (self.wq, self.wk, self.wv)
        )
        scores = (
            rotated(q) @ rotated(k).transpose(-2, -1) / (width // self.heads) ** 0.5
        )
        weights = scores.masked_fill(
            torch.ones(length, length).triu(1).bool(), float("-inf")
        ).softmax(-1)
        return self.wo((weights @ v).transpose(1, 2).reshape(n, length, width))  # type: ignore[no-any-return]


class GatedMLP(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.w1, self.w3 = (nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.w2 = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.w2(F.silu(self.w1(x)) * self.w3(x))  # type: ignore[no-any-return]


class LlamaBlock(nn.Module):
    def __init__(self, width: int, feed_forward: nn.Module | None = None) -> None:
        super().__init__()
        self.attention, self.feed_forward = (
            LlamaAttention(width),
            feed_forward or GatedMLP(width),
        )
        self.attention_norm, self.ffn_norm = RMSNorm(width), RMSNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))  # type: ignore[no-any-return]


class MixtureOfExperts(nn.Module):
    def __init__(self, width: int, experts: int = 3) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(GatedMLP(width) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, places = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(
                0, rows, expert(flat[rows]) * weights[rows, places, None]
            )
        return out.view_as(x)


class Llama(nn.Module):
    def __init__(self, layers: int = 2, width: int = 16, experts: bool = False) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(20, width)
        made = (
            LlamaBlock(width, MixtureOfExperts(width) if experts else None)
            for _ in range(layers)
        )
        self.layers = nn.ModuleList(made)
        self.norm = RMSNorm(width)
        self.output = nn.Linear(width, 20, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))  # type: ignore[no-any-return]


class RWKVBlock(nn.Module):
    """Time mixing with a state that runs along the sequence, then channel mixing."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.decay, self.mix = (
            nn.Parameter(torch.zeros(width)),
            nn.Parameter(torch.full((width,), 0.5)),
        )
        self.key, self.value, self.receptance = (
            nn.Linear(width, width, bias=False) for _ in range(3)
        )
        self.output = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln1(x)
        mixed = y * self.mix + F.pad(y[:, :-1], (0, 0, 1, 0)) * (1 - self.mix)
        k, v, r = (
            self.key(mixed),
            self.value(mixed),
            torch.sigmoid(self.receptance(mixed)),
        )
        state, decay, made = (
            torch.zeros_like(x[:, 0]),
            torch.exp(-torch.exp(self.decay)),
            [],
        )
        for i in range(x.shape[1]):
            state = state * decay + k[:, i] * v[:, i]
            made.append(state)
        x = x + self.output(r * torch.stack(made, 1))
        return x + self.down(torch.relu(self.up(self.ln2(x))).square())  # type: ignore[no-any-return]


class RWKV(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(RWKVBlock(8) for _ in range(3))
        self.ln_out, self.head = nn.LayerNorm(8), nn.Linear(8, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_out(x))  # type: ignore[no-any-return]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, num_layers=2, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(16, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        out, _ = self.lstm(self.dropout(self.embedding(tokens)))
        return self.fc(self.dropout(out))  # type: ignore[no-any-return]


class Unrolled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(4, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = c = torch.zeros(x.shape[0], 8)
        for i in range(x.shape[1]):
            h, c = self.cell(x[:, i], (h, c))
        return self.head(h)  # type: ignore[no-any-return]


class OwnCell(nn.Module):
    """A recurrent cell written out, and a loop over it."""

    def __init__(self) -> None:
        super().__init__()
        self.i2h, self.h2h = nn.Linear(4, 8), nn.Linear(8, 8)
        self.gate = nn.Linear(12, 8)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        new = torch.tanh(self.i2h(x) + self.h2h(h))
        z = torch.sigmoid(self.gate(torch.cat([x, h], 1)))
        return z * h + (1 - z) * new  # type: ignore[no-any-return]


class OwnRNN(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.out = OwnCell(), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.zeros(x.shape[1], 8)
        for one in x:
            h = self.cell(one, h)
        return F.log_softmax(self.out(h), -1)


class Decoder(nn.Module):
    """A GRU step with attention over what an encoder made."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.attention = nn.Linear(16, 8)
        self.score = nn.Linear(8, 1, bias=False)
        self.gru = nn.GRUCell(16, 8)
        self.out = nn.Linear(8, 20)

    def forward(
        self, token: Tensor, h: Tensor, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        wide = h.unsqueeze(1).expand(-1, memory.shape[1], -1)
        energy = self.score(
            torch.tanh(self.attention(torch.cat([wide, memory], -1)))
        ).squeeze(-1)
        context = (F.softmax(energy, -1).unsqueeze(1) @ memory).squeeze(1)
        h = self.gru(torch.cat([self.embedding(token), context], -1), h)
        return self.out(h), h


class Seq2Seq(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.encoder = nn.GRU(8, 8, batch_first=True)
        self.decoder = Decoder()

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory, h = self.encoder(self.embedding(source))
        state, made = h[0], []
        for i in range(target.shape[1]):
            logits, state = self.decoder(target[:, i], state, memory)
            made.append(logits)
        return torch.stack(made, 1)


def tokens(make: type[nn.Module], *arguments: int) -> Case:
    """A language model with its loss outside."""

    def case() -> tuple[nn.Module, Callable[[], Tensor]]:
        model, given = make(*arguments), torch.randint(20, (2, 7))

        def run() -> Tensor:
            logits = model(given[:, :-1])
            return F.cross_entropy(logits.reshape(-1, 20), given[:, 1:].reshape(-1))

        return model, run

    return case


def encoder() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 3
    )
    return model, lambda: model(torch.randn(2, 5, 16)).mean()


def transformer() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = nn.Transformer(16, 2, 2, 2, 32, batch_first=True)
    return model, lambda: model(torch.randn(2, 5, 16), torch.randn(2, 6, 16)).mean()


def seq2seq() -> tuple[nn.Module, Callable[[], Tensor]]:
    model = Seq2Seq()
    source, target = torch.randint(20, (2, 5)), torch.randint(20, (2, 4))
    return model, lambda: F.cross_entropy(
        model(source, target).flatten(0, 1), target.flatten()
    )


CASES: dict[str, Case] = {
    "nn.TransformerEncoder": encoder,
    "nn.Transformer": transformer,
    "GPT": tokens(GPT),
    "Llama": tokens(Llama),
    "mixture of experts": tokens(Llama, 2, 16, True),
    "RWKV": tokens(RWKV),
    "LSTM tagger": tokens(Tagger),
    "LSTM cell in a loop": summed(Unrolled, 2, 6, 4),
    "cell of one's own": summed(OwnRNN, 6, 2, 4),
    "seq2seq with attention": seq2seq,
}
