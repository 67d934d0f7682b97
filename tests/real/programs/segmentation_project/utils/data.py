import torch
from torch.utils.data import Dataset


class RandomShapes(Dataset):
    def __init__(self, n, size=16):
        self.n, self.size = n, size

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        mask = torch.zeros(self.size, self.size, dtype=torch.long)
        a, b = torch.randint(0, self.size // 2, (2,)).tolist()
        mask[a : a + 6, b : b + 6] = 1 + i % 2
        return {"image": mask.float().expand(3, -1, -1) + 0.1 * torch.randn(3, self.size, self.size), "mask": mask}
