"""torch.jit: what is traced and scripted, the graph's text with its source ranges, and training beside a scripted teacher."""

import io
import warnings
import torch
from torch import nn

warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", category=FutureWarning)

torch.manual_seed(0)


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)) * x.shape[0])


@torch.jit.script
def poly(x: torch.Tensor, n: int) -> torch.Tensor:
    for i in range(n):
        x = x * 0.5 + x.sin()
    return x


student = Student()
teacher = torch.jit.script(nn.Sequential(nn.Linear(4, 2), nn.Tanh()))
opt = torch.optim.SGD(student.parameters(), 0.1)
for step in range(4):
    x = torch.randn(3, 4)
    loss = nn.functional.mse_loss(student(x), poly(teacher(x), 2).detach()) + 1e-3 * poly(student(x), 3).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
traced = torch.jit.trace(student, torch.ones(3, 4), check_trace=False)
print(traced.graph)
print(torch.jit.trace(lambda t: (t.sin() * 2).sum(0) + t.size(1), torch.ones(3, 4)).graph)
print(traced.code)
out = traced(torch.ones(3, 4)).sum()
out.backward()
print(out.item(), student.a.weight.grad.norm().item())
buffer = io.BytesIO()
torch.jit.save(torch.jit.freeze(traced.eval()), buffer)
print(poly.graph)
