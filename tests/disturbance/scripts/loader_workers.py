"""DataLoaders: in process, with workers, sampler, own collate, seeds of the workers, from_numpy as the transform."""

import random
from functools import partial
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler, get_worker_info, random_split


class Rows(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 8

    def __getitem__(self, i):
        return self.transform(np.full(3, i, dtype=np.float32) + np.float32(random.random()))


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        yield from (
            torch.full((3,), float(i)) * torch.rand(1)
            for i in range(info.id if info else 0, 6, info.num_workers if info else 1)
        )


def seed_worker(worker):
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(worker)


def collate(scale, rows):
    return torch.stack(rows) * scale


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    opt = torch.optim.SGD(net.parameters(), 1e-3)
    train, valid = random_split(Rows(torch.from_numpy), [6, 2])
    loaders = [
        DataLoader(train, 2, shuffle=True, collate_fn=partial(collate, 0.5)),
        DataLoader(train, 2, num_workers=1, worker_init_fn=seed_worker, generator=torch.Generator().manual_seed(3)),
        DataLoader(Rows(torch.from_numpy), 2, sampler=WeightedRandomSampler([1.0] * 8, 4), num_workers=2),
        DataLoader(Stream(), 2, num_workers=1),
    ]
    for number, loader in enumerate(loaders):
        for batch in loader:
            loss = net(batch).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(number, loss.item(), batch.sum().item())
        with torch.no_grad():
            print("valid", sum(net(b).sum().item() for b in DataLoader(valid, 2)), random.random())
