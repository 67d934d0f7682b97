"""What `gradviz.check` costs, as a multiple of `gradviz.walk` on the same graph.

    python -m benchmarks.check [REPEATS]

Prints the best of REPEATS (7) for each, side by side in one run. Without `values` the ratio is to stay below 2. Then: the processor
time of a check and of the page for ten times as many nodes, which is to be at most 12 times; and that of the command on a script of
three steps, imports counted, as a multiple of that of the script alone. It is to stay below 1.3. Last: what `check --continue` and
`render --continue` add to a small step of a long training, without imports and the first 300 steps.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import gradviz


def chain(length: int) -> tuple[torch.Tensor, nn.Module]:
    """A recurrence of one layer."""
    net = nn.Linear(4, 4)
    x = torch.ones(1, 4)
    for _ in range(length // 4):
        x = torch.tanh(net(x))
    return x.sum(), net


def layers(count: int) -> tuple[torch.Tensor, nn.Module]:
    """Many modules, each with its own parameters."""
    net = nn.Sequential(
        *(
            layer
            for _ in range(count)
            for layer in (nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())
        )
    )
    return net(torch.ones(1, 4)).sum(), net


def best(
    step: Callable[[], object],
    repeats: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The least seconds of several runs."""
    found = float("inf")
    for _ in range(repeats):
        start = clock()
        step()
        found = min(found, clock() - start)
    return found


SCRIPT = """
import torch
net = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), {layers})
optimizer = torch.optim.Adam(net.parameters())
for step in range(3):
    loss = (net(torch.randn(8, 64, 128)) - torch.randn(8, 64, 128)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


STEPS = {
    "MLP": """
net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
x, y = torch.randn(64, 32), torch.randint(10, (64,))
def loss_of():
    return F.cross_entropy(net(x), y)
""",
    "policy": """
net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
def loss_of():
    state, states, actions = torch.randn(4), [], []
    with torch.no_grad():
        for _ in range(20):
            action = torch.distributions.Categorical(logits=net(state)).sample()
            states.append(state)
            actions.append(action)
            state = state + 0.1 * action
    policy = torch.distributions.Categorical(logits=net(torch.stack(states)))
    return -policy.log_prob(torch.stack(actions)).mean()
""",
    "LSTM cell": """
net = nn.LSTMCell(8, 16)
x, y = torch.randn(20, 4, 8), torch.randn(4, 16)
def loss_of():
    state = torch.zeros(4, 16), torch.zeros(4, 16)
    for part in x:
        state = net(part, state)
    return (state[0] - y).square().mean()
""",
    "VAE": """
net = nn.ModuleList([nn.Linear(64, 8), nn.Linear(4, 64)])
x = torch.rand(32, 64)
def loss_of():
    mu, logvar = net[0](x).chunk(2, dim=1)
    z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
    kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).mean()
    return F.binary_cross_entropy_with_logits(net[1](z), x) + kl
""",
}
"""Small steps; what a model and its loss are."""

_LOOP = """
import sys, time, torch
from torch import nn
from torch.nn import functional as F
torch.set_num_threads(1)
{model}
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range({count}):
    if step == {first}:
        began = time.process_time()
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    optimizer.step()
with open(sys.argv[1], "w") as file:
    print((time.process_time() - began) / ({count} - {first}), file=file)
"""


def small_steps(repeats: int) -> None:
    """Print what is added to a step."""
    commands = {
        "plain": (),
        "check": ("-m", "gradviz", "check", "--continue", "--fail-on", "never"),
        "render": ("-m", "gradviz", "render", "--continue", "-o", "{folder}/graph.svg"),
    }
    print(f"\n{'small step':<24} {'plain us':>9} {'check':>6} {'render':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name, model in STEPS.items():
            script, noted = Path(folder) / "steps.py", Path(folder) / "seconds.txt"
            script.write_text(_LOOP.format(model=model, first=300, count=900))
            least = dict.fromkeys(commands, float("inf"))
            for command in list(commands) * repeats:
                words = [word.format(folder=folder) for word in commands[command]]
                between = ["--"] if words else []
                processor_seconds(*words, str(script), *between, str(noted))
                least[command] = min(least[command], float(noted.read_text()))
            plain = least["plain"]
            print(
                f"{name:<24} {plain * 1e6:>9.0f} {least['check'] / plain:>6.2f} {least['render'] / plain:>6.2f}",
                flush=True,
            )


def processor_seconds(*command: str) -> float:
    """User and system time of a command."""
    # What is installed has been compiled once; a checkout that may not keep its
    # bytecode would be compiled at each run.
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *command],
        env=environment,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scripts(repeats: int) -> None:
    """Print what the command costs beside the script alone."""
    print(f"\n{'script of three steps':<24} {'alone s':>9} {'check s':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for layers in (2, 12):
            path = Path(folder) / f"encoder{layers}.py"
            path.write_text(SCRIPT.format(layers=layers))
            alone = min(processor_seconds(str(path)) for _ in range(repeats))
            check = min(
                processor_seconds(
                    "-m", "gradviz", "check", "--fail-on", "never", str(path)
                )
                for _ in range(repeats)
            )
            print(
                f"{f'{layers} encoder layers':<24} {alone:>9.2f} {check:>9.2f} {check / alone:>6.2f}"
            )


def growth() -> None:
    """Print what ten times as many nodes cost, of a check and of the page: twelve times at most is asked."""
    print(f"\n{'chain':<24} {'10,000 s':>9} {'100,000 s':>9} {'ratio':>6}")
    graphs = [gradviz.walk(products(length)) for length in (10_000, 100_000)]
    losses = [products(length) for length in (10_000, 100_000)]
    with tempfile.TemporaryDirectory() as folder:
        ways: dict[str, Callable[[int], object]] = {
            "check": lambda i: gradviz.check(losses[i]),
            "page": lambda i: graphs[i].save(f"{folder}/page.html"),
        }
        for name, way in ways.items():
            small, large = (best(lambda: way(i), 2, time.process_time) for i in (0, 1))  # noqa: B023
            print(f"{name:<24} {small:>9.2f} {large:>9.2f} {large / small:>6.1f}")


def products(length: int) -> torch.Tensor:
    """A chain of one op."""
    x = torch.ones(3, requires_grad=True)
    for _ in range(length):
        x = x * 1.0001
    return x.sum()


def main() -> int:
    """Print the table."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    print(f"{'graph':<24} {'nodes':>9} {'walk ms':>9} {'check ms':>9} {'ratio':>6}")
    for name, (loss, net) in {
        "recurrence": chain(1_000),
        "long recurrence": chain(200_000),
        "60 layers": layers(20),
        "3000 layers": layers(1_000),
    }.items():
        nodes = len(gradviz.walk(loss, model=net).nodes)
        walk = best(lambda: gradviz.walk(loss, model=net), repeats)  # noqa: B023 -- called at once
        check = best(lambda: gradviz.check(loss, model=net), repeats)  # noqa: B023
        print(
            f"{name:<24} {nodes:>9,} {walk * 1000:>9.2f} {check * 1000:>9.2f} {check / walk:>6.2f}"
        )
    growth()
    scripts(min(repeats, 3))
    small_steps(min(repeats, 3))
    return 0


if __name__ == "__main__":
    sys.exit(main())
