"""Everything that scripts print: tensors and modules, logging, progress without newlines, child processes, low-level writes."""

import logging
import os
import subprocess
import sys
import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(funcName)s:%(lineno)d %(message)s")
log = logging.getLogger("train")
torch.manual_seed(0)
torch.set_printoptions(precision=6, sci_mode=False)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(3, 1)

    def forward(self, x):
        log.debug("hidden")
        return self.l(x)

    def extra_repr(self):
        return "mine=1"


net = Net()
opt = torch.optim.SGD(net.parameters(), 0.1)
print(net, opt)
for step in range(4):
    loss = net(torch.randn(2, 3)).square().sum()
    print("loss", loss, net.l.weight, loss.grad_fn.name(), f"{loss:.4f}", end="\r")
    opt.zero_grad()
    loss.backward()
    sys.stdout.write(f"step {step} grad {net.l.bias.grad}\n")
    sys.stderr.write(f"\r{step + 1}/4")
    opt.step()
    log.info("step %d loss %.6f", step, loss)
    try:
        raise ValueError("logged")
    except ValueError:
        log.exception("caught")
    sys.stdout.flush()
    os.write(1, b"to descriptor 1\n")
    os.write(2, b"to descriptor 2\n")
    subprocess.run(
        [sys.executable, "-S", "-c", "import sys; print('child', len(sys.argv), __name__)"], check=True
    ) if step == 1 else None
print(file=sys.stderr)
print(*[repr(p) for p in net.parameters()], list(net.state_dict().items()))
print(sys.stdout.name, sys.stderr.name, sys.stdin.read() == "", sys.stdout.encoding, sys.argv[1:])
