"""How near the peak that `gradviz fit` predicts is to the one that torch's own CPU allocator reports:

    python -m benchmarks.fit [BATCH] [--only WORD]

Every model is run at batch 8 and 16 under the tracker, which predicts batch BATCH (32 unless told). At that batch it is measured in
two other ways: by torch's own `MemTracker`, which counts tensors, and by `torch.profiler`, whose memory events come from the
allocator, with what kernels allocate inside: convolutions and LSTMs do, and nothing that counts tensors sees it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch.profiler import profile
from torch.utils.checkpoint import checkpoint

from gradviz.memory.fit.prediction import BATCHES
from gradviz.memory.fit.trace import Forecast, Trace, read, two_runs
from gradviz.memory.fit.tracker import Tracker
from gradviz.run.ending import Stopped
from gradviz.run.engine import watching_backward

WITHIN = 0.01
Parts = tuple[nn.Module, torch.optim.Optimizer, Callable[[int], torch.Tensor]]
"""A model, its optimizer, and the loss of a new batch of this size."""


class Residual(nn.Module):
    """Runs a module and adds its input."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Attention(nn.Module):
    """Self-attention by torch's fused function."""

    def __init__(self, width: int, causal: bool) -> None:
        super().__init__()
        self.qkv, self.out, self.causal = nn.Linear(width, 3 * width), nn.Linear(width, width), causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        return self.out(
            functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2)
        )


class Checkpointed(nn.Module):
    """Blocks that are computed again in backward."""

    def __init__(self, *blocks: nn.Module) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x


class UNet(nn.Module):
    """Two levels with a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.up = conv(3, 16), conv(16, 16), conv(32, 16)
        self.last = nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down = self.down(x)
        middle = functional.interpolate(self.middle(functional.max_pool2d(down, 2)), scale_factor=2)
        return self.last(self.up(torch.cat([down, middle], 1)))


class Experts(nn.Module):
    """A soft mixture of four experts."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, 4)
        self.experts = nn.ModuleList(feed_forward(width) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = self.gate(x).softmax(-1)
        return sum((weights[..., i, None] * expert(x) for i, expert in enumerate(self.experts)), torch.zeros_like(x))


class LoRA(nn.Module):
    """A frozen layer and a trained one of low rank beside it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width).requires_grad_(False)
        self.a, self.b = nn.Linear(width, 4, bias=False), nn.Linear(4, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.b(self.a(x))


class Last(nn.Module):
    """The result of a recurrent network without its state."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


def conv(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU())


def feed_forward(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))


def block(width: int, causal: bool = False) -> nn.Module:
    parts = Attention(width, causal), feed_forward(width)
    return nn.Sequential(*(Residual(nn.Sequential(nn.LayerNorm(width), part)) for part in parts))


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


def regression(
    net: nn.Module, *shape: int, optimizer: Callable[[Any], torch.optim.Optimizer] = adam, autocast: bool = False
) -> Parts:
    """Inputs of this shape, whose squared outputs are the loss."""

    def loss(batch: int) -> torch.Tensor:
        x = torch.randn(batch, *shape)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return net(x).float().square().mean()

    return net, optimizer([p for p in net.parameters() if p.requires_grad]), loss


def language(net: nn.Module, *, length: int = 32) -> Parts:
    def loss(batch: int) -> torch.Tensor:
        tokens = torch.randint(200, (batch, length))
        return functional.cross_entropy(net(tokens).flatten(0, 1), tokens.flatten())

    return net, adam(net.parameters()), loss


def contrastive() -> Parts:
    """Batch x batch scores: not a line in the batch."""
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16))

    def loss(batch: int) -> torch.Tensor:
        one, other = (functional.normalize(net(torch.randn(batch, 32)), dim=-1) for _ in range(2))
        return functional.cross_entropy(one @ other.T / 0.1, torch.arange(batch))

    return net, adam(net.parameters()), loss


def samples() -> Parts:
    """A tensor for each sample, in a loop."""
    net = nn.Sequential(nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1))

    def loss(batch: int) -> torch.Tensor:
        return net(torch.stack([torch.randn(256) for _ in range(batch)])).square().mean()

    return net, adam(net.parameters()), loss


_LAYERS = "hidden_size=64 num_hidden_layers=2 num_attention_heads=4 intermediate_size=128"
_TRANSFORMERS = {
    "bert": ("BertForMaskedLM", "BertConfig", _LAYERS),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", "n_embd=64 n_layer=2 n_head=4 n_positions=64"),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        "d_model=64 d_kv=16 d_ff=128 num_layers=2 num_heads=4 decoder_start_token_id=0",
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _LAYERS),
}


def transformer(name: str) -> Parts:
    """A small model of transformers, made from a configuration."""
    import transformers as t

    model, config, options = _TRANSFORMERS[name]
    numbers = {key: int(value) for key, value in (option.split("=") for option in options.split())}
    net = getattr(t, model)(getattr(t, config)(vocab_size=200, **numbers))

    def loss(batch: int) -> torch.Tensor:
        tokens = torch.randint(1, 200, (batch, 32))
        found: torch.Tensor = net(input_ids=tokens, labels=tokens).loss
        return found

    return net, adam(net.parameters()), loss


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10))


def vit() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 32, 4, 4), nn.Flatten(2), nn.Linear(64, 32), block(32), block(32))


def resnet() -> nn.Module:
    bodies = (nn.Sequential(conv(16, 16), nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)) for _ in range(3))
    return nn.Sequential(conv(3, 16), *map(Residual, bodies), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def gpt(*, again: bool = False) -> nn.Module:
    blocks = [block(32, causal=True) for _ in range(3)]
    return nn.Sequential(nn.Embedding(200, 32), *([Checkpointed(*blocks)] if again else blocks), nn.Linear(32, 200))


MODELS: dict[str, Callable[[], Parts]] = {
    "MLP, AdamW": lambda: regression(mlp(), 64),
    "MLP, SGD": lambda: regression(mlp(), 64, optimizer=lambda p: torch.optim.SGD(p, 0.1)),
    "MLP, SGD with momentum": lambda: regression(mlp(), 64, optimizer=lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "MLP, Adam by foreach": lambda: regression(mlp(), 64, optimizer=lambda p: torch.optim.Adam(p, foreach=True)),
    "MLP, Adafactor": lambda: regression(mlp(), 64, optimizer=lambda p: torch.optim.Adafactor(p)),
    "MLP, RMSprop": lambda: regression(mlp(), 64, optimizer=lambda p: torch.optim.RMSprop(p)),
    "MLP, autocast": lambda: regression(mlp(), 64, autocast=True),
    "ResNet": lambda: regression(resnet(), 3, 32, 32),
    "U-Net": lambda: regression(UNet(), 3, 32, 32),
    "ViT": lambda: regression(vit(), 3, 32, 32),
    "LSTM": lambda: regression(Last(nn.LSTM(16, 64, 2, batch_first=True)), 20, 16),
    "GRU": lambda: regression(Last(nn.GRU(16, 64, batch_first=True)), 20, 16),
    "mixture of experts": lambda: regression(nn.Sequential(Experts(32), Experts(32)), 16, 32),
    "LoRA": lambda: regression(nn.Sequential(*(LoRA(128) for _ in range(4))), 8, 128),
    "encoder": lambda: regression(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 16, 32),
    "dropout": lambda: regression(nn.Sequential(nn.Linear(64, 256), nn.Dropout(0.5), nn.Linear(256, 9)), 64),
    "GPT": lambda: language(gpt()),
    "GPT, checkpointed": lambda: language(gpt(again=True)),
    "contrastive": contrastive,
    "loop over samples": samples,
    "BERT of transformers": lambda: transformer("bert"),
    "GPT-2 of transformers": lambda: transformer("gpt2"),
    "T5 of transformers": lambda: transformer("t5"),
    "Llama of transformers": lambda: transformer("llama"),
}


def train(model: Callable[[], Parts], batch: int, built: Callable[..., object] = lambda *_: None) -> None:
    """Two steps."""
    torch.manual_seed(0)
    net, optimizer, loss = model()
    built(net, optimizer)
    net.train()
    for _ in range(2):
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad()


def traced(model: Callable[[], Parts], batch: int) -> Trace:
    """What the tracker notes of two steps."""
    tracker = Tracker()
    with suppress(Stopped), watching_backward(tracker.on_backward), tracker:
        train(model, batch)
    return read(tracker.notes())


def predicted(model: Callable[[], Parts]) -> Forecast:
    """Bytes at any batch, from two tiny ones."""
    return two_runs(*(traced(model, batch) for batch in BATCHES), BATCHES, 1)


class Totals(MemTracker):
    """torch's own tracker without what it keeps for each module, which refuses a module that is called twice."""

    def _pre_fw_hook(self, *_: Any) -> None: ...

    def _post_fw_hook(self, *_: Any) -> None: ...

    def _pre_bw_hook(self, *_: Any) -> None: ...

    def _post_bw_hook(self, *_: Any) -> None: ...


def counted(model: Callable[[], Parts], batch: int) -> int:
    """The most bytes of tensors at once, as torch's own tracker tells it."""
    tracker = Totals()
    with tracker:
        train(model, batch, tracker.track_external)
    return max(kinds["Total"] for kinds in tracker.get_tracker_snapshot("peak").values())


def measured(model: Callable[[], Parts], batch: int) -> int:
    """The most that the allocator has given out at once, as torch's profiler tells it."""
    with profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as recorded:
        train(model, batch)
    held = most = 0
    for event in recorded.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def main() -> int:
    """Print the table; 1 when one of them is off by more than 1 %."""
    words = sys.argv[1:]
    only = words[words.index("--only") + 1] if "--only" in words else ""
    batch = int(words[0]) if words and words[0].isdigit() else 32
    print(
        f"{'model':<24} {'predicted':>12} {'MemTracker':>12} {'off by':>8} {'allocator':>12} {'off by':>8}  at batch {batch}"
    )
    far = 0
    for name, model in MODELS.items():
        if only in name:
            ours, tensors, given = predicted(model).peak(batch), counted(model, batch), measured(model, batch)
            far += abs(ours - tensors) > WITHIN * tensors
            cells = f"{ours:>12,} {tensors:>12,} {ours / tensors - 1:>8.2%} {given:>12,} {ours / given - 1:>8.2%}"
            print(f"{name:<24} {cells}", flush=True)
    return 1 if far else 0


if __name__ == "__main__":
    sys.exit(main())
