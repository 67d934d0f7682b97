"""Sparse embeddings with SparseAdam, sparse matrices, complex weights, FFT, and views as real."""

import torch
from torch import nn

torch.manual_seed(0)
emb = nn.Embedding(12, 4, sparse=True)
bag = nn.EmbeddingBag(12, 4, mode="sum", sparse=True)
z = nn.Parameter(torch.randn(4, dtype=torch.cfloat))
lin = nn.Linear(4, 1)
sparse_opt = torch.optim.SparseAdam([*emb.parameters(), *bag.parameters()], lr=0.1)
opt = torch.optim.Adam([z, *lin.parameters()], lr=0.05)
adj = torch.sparse_coo_tensor([[0, 1, 2], [1, 2, 0]], [1.0, 2.0, 3.0], (3, 3)).requires_grad_()
csr = torch.eye(3).to_sparse_csr()
for step in range(4):
    ids = torch.randint(0, 12, (3, 2))
    e = emb(ids).mean(1) + bag(ids)
    h = torch.sparse.mm(adj, e)
    f = torch.fft.ifft(torch.fft.fft(h.to(torch.cfloat)) * z)
    loss = lin(torch.view_as_real(f)[..., 0] + f.imag + f.abs()).square().mean() + (csr @ h).sum() * 0.01
    sparse_opt.zero_grad()
    opt.zero_grad()
    loss.backward()
    print(step, loss.item(), emb.weight.grad.coalesce().indices().tolist(), z.grad.abs().sum().item(), adj.grad.layout)
    sparse_opt.step()
    opt.step()
