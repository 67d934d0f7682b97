"""Jagged nested tensors, scaled dot product attention with every kind of mask, flash and math backends."""

import warnings
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

warnings.filterwarnings("ignore", category=UserWarning)

torch.manual_seed(0)
q, proj = nn.Linear(8, 24), nn.Linear(8, 8)
decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.1, batch_first=True), 1)
opt = torch.optim.AdamW([*q.parameters(), *proj.parameters(), *decoder.parameters()], 1e-2)
for step in range(4):
    x = torch.randn(2, 5, 8)
    a, b, c = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in q(x).chunk(3, -1))
    causal = nn.functional.scaled_dot_product_attention(a, b, c, is_causal=True, dropout_p=0.1)
    mask = torch.rand(5, 5) > 0.3
    mask[:, 0] = True
    with sdpa_kernel(SDPBackend.MATH):
        masked = nn.functional.scaled_dot_product_attention(a, b, c, attn_mask=mask)
    h = proj((causal + masked).transpose(1, 2).flatten(2))
    tgt = decoder(h, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5), tgt_is_causal=True)
    jagged = torch.nested.nested_tensor([x[0, :3], x[1]], layout=torch.jagged)
    ragged = (proj(jagged) * 2).values()
    loss = tgt.square().mean() + ragged.abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    decoder.eval()
    with torch.inference_mode():
        valid = decoder(torch.ones(1, 2, 8), torch.ones(1, 3, 8)).sum().item()
    decoder.train()
    print(step, loss.item(), valid, list(jagged.shape)[0], jagged.offsets().tolist())
