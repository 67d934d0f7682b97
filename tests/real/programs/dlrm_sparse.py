"""Recommender with sparse embedding bags and feature interactions; two optimizers because of the sparse gradients."""

import torch
import torch.nn as nn


class DLRM(nn.Module):
    def __init__(self, num_dense=4, tables=(20, 30, 40, 50), dim=8):
        super().__init__()
        self.emb_l = nn.ModuleList(nn.EmbeddingBag(n, dim, mode="sum", sparse=True) for n in tables)
        self.bot_l = self.create_mlp([num_dense, 16, dim])
        pairs = (len(tables) + 1) * len(tables) // 2
        self.top_l = self.create_mlp([dim + pairs, 16, 1], sigmoid=True)

    def create_mlp(self, ln, sigmoid=False):
        layers = nn.ModuleList()
        for i in range(len(ln) - 1):
            layers.append(nn.Linear(ln[i], ln[i + 1]))
            layers.append(nn.Sigmoid() if sigmoid and i == len(ln) - 2 else nn.ReLU())
        return torch.nn.Sequential(*layers)

    def apply_emb(self, lS_o, lS_i):
        ly = []
        for k, sparse_index_group_batch in enumerate(lS_i):
            ly.append(self.emb_l[k](sparse_index_group_batch, lS_o[k]))
        return ly

    def interact_features(self, x, ly):
        (batch_size, d) = x.shape
        T = torch.cat([x] + ly, dim=1).view((batch_size, -1, d))
        Z = torch.bmm(T, torch.transpose(T, 1, 2))
        _, ni, nj = Z.shape
        li = torch.tensor([i for i in range(ni) for j in range(i)])
        lj = torch.tensor([j for i in range(nj) for j in range(i)])
        Zflat = Z[:, li, lj]
        return torch.cat([x] + [Zflat], dim=1)

    def forward(self, dense_x, lS_o, lS_i):
        x = self.bot_l(dense_x)
        ly = self.apply_emb(lS_o, lS_i)
        z = self.interact_features(x, ly)
        return self.top_l(z)


dlrm = DLRM()
loss_fn = nn.BCELoss(reduction="mean")
dense_opt = torch.optim.Adam([*dlrm.bot_l.parameters(), *dlrm.top_l.parameters()], lr=1e-3)
sparse_opt = torch.optim.SparseAdam(list(dlrm.emb_l.parameters()), lr=1e-2)
for j in range(3):
    X = torch.rand(6, 4)
    lS_i = [torch.randint(0, n, (12,)) for n in (20, 30, 40, 50)]
    lS_o = [torch.arange(0, 12, 2) for _ in range(4)]
    T = torch.randint(0, 2, (6, 1)).float()
    Z = dlrm(X, lS_o, lS_i)
    E = loss_fn(Z, T)
    dense_opt.zero_grad()
    sparse_opt.zero_grad()
    E.backward()
    dense_opt.step()
    sparse_opt.step()
    print("Finished training it {}/{}, loss {:.6f}".format(j + 1, 3, E.item()))
