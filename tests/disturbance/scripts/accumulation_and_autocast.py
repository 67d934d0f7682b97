"""Mixed precision on the CPU with a GradScaler, accumulated over micro-batches, unscaled and clipped."""

import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.manual_seed(0)
net = nn.Sequential(
    nn.Conv1d(2, 8, 3, padding=1), nn.BatchNorm1d(8), nn.SiLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)
)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0.1)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 6)
scaler = GradScaler("cpu", init_scale=1024.0, growth_interval=2)
accumulate = 2
val = torch.randn(4, 2, 8), torch.randint(0, 3, (4,))
for step in range(8):
    x, y = torch.randn(4, 2, 8), torch.randint(0, 3, (4,))
    with autocast("cpu", dtype=torch.bfloat16):
        out = net(x)
        loss = nn.functional.cross_entropy(out, y) / accumulate
    scaler.scale(loss).backward()
    if (step + 1) % accumulate == 0:
        scaler.unscale_(opt)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=False)
        scaler.step(opt)
        scaler.update()
        opt.zero_grad(set_to_none=True)
        sched.step()
        net.eval()
        with torch.no_grad(), autocast("cpu", dtype=torch.bfloat16):
            logits = net(val[0])
            valid = nn.functional.cross_entropy(logits.float(), val[1])
        net.train()
        print(step, out.dtype, loss.item(), norm.item(), scaler.get_scale(), valid.item(), sched.get_last_lr()[0])
with autocast("cpu", dtype=torch.bfloat16, cache_enabled=True):
    a = net[5](torch.ones(1, 8))
    b = net[5](torch.ones(1, 8))
    (a + b).sum().backward()
    with autocast("cpu", enabled=False):
        c = net[5](torch.ones(1, 8))
print(a.dtype, c.dtype, torch.is_autocast_enabled("cpu"))
nn.utils.clip_grad_value_(net.parameters(), 0.01)
