"""Training beside a pool that makes batches, a metric thread, and coroutines; numbers are gathered in a fixed order."""

import asyncio
import contextvars
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
import torch
from torch import nn

torch.manual_seed(0)
run = contextvars.ContextVar("run", default="main")
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), 0.05)
local = threading.local()


def batch(seed):
    local.count = getattr(local, "count", 0) + 1
    return torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))


results, todo = [], queue.Queue()


def writer():
    while (item := todo.get()) is not None:
        results.append(f"{item[0]} {item[1]!r}")


thread = threading.Thread(target=writer, name="writer")
thread.start()
try:
    with ThreadPoolExecutor(2) as pool:
        for step, x in enumerate(pool.map(batch, range(4))):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            todo.put((step, loss.item()))
finally:
    todo.put(None)
    thread.join()
print(results)


def train_elsewhere():
    torch.set_grad_enabled(True)
    for _ in range(2):
        loss = net(batch(9)).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    results.append(loss.item())
    with torch.no_grad():
        results.append(net(batch(10)).requires_grad)


other = threading.Thread(target=train_elsewhere)
other.start()
other.join()


async def evaluate(name):
    run.set(name)
    await asyncio.sleep(0)
    with torch.no_grad():
        value = net(batch(len(name))).mean().item()
    return run.get(), value


async def main():
    for step in range(2):
        loss = net(batch(step)).mean()
        opt.zero_grad()
        loss.backward()
        await asyncio.sleep(0)
        opt.step()
    return await asyncio.gather(evaluate("a"), evaluate("bb"))


print(asyncio.run(main()), run.get(), results[-2:], torch.is_grad_enabled(), threading.active_count())
