"""nn.MultiheadAttention in inference, every way that its fast path looks at: inference mode, masks, nested tensors."""

import torch
from torch import nn
import warnings

warnings.filterwarnings("ignore", message="The PyTorch API of nested tensors")

torch.manual_seed(3)
mha = nn.MultiheadAttention(16, 4, batch_first=True)
lin = nn.Linear(16, 16)
opt = torch.optim.SGD([*mha.parameters(), *lin.parameters()], lr=0.1)
x = torch.randn(2, 5, 16)
pad = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
outs = []
for step in range(4):
    mha.train()
    y, w = mha(x, x, x, key_padding_mask=pad)
    loss = (lin(y) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    mha.eval()
    with torch.inference_mode():
        outs.append(mha(x, x, x, need_weights=False)[0].sum().item())
    with torch.no_grad():
        outs.append(mha(x, x, x, key_padding_mask=pad)[0].sum().item())
        q = torch.nested.nested_tensor([x[0], x[1, :3]])
        nested = mha(q, q, q, need_weights=False)[0].to_padded_tensor(0.0)
    # frozen parameters: the fast path is taken without no_grad, too
    for p in mha.parameters():
        p.requires_grad_(False)
    frozen = mha(x, x, x, need_weights=False)[0]
    for p in mha.parameters():
        p.requires_grad_(True)
    print(step, loss.item(), outs[-2:], nested.abs().sum().item(), frozen.sum().item())
