# tiny CLIP: image tower + text tower + learned temperature, symmetric cross entropy
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


class ImageEncoder(nn.Module):
    def __init__(self, width=32, embed=16):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.pos = nn.Parameter(torch.randn(1, 17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.proj = nn.Parameter(width**-0.5 * torch.randn(width, embed))

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        return self.encoder(x)[:, 0] @ self.proj


class TextEncoder(nn.Module):
    def __init__(self, vocab=60, width=32, embed=16):
        super().__init__()
        self.token = nn.Embedding(vocab, width)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.proj = nn.Linear(width, embed, bias=False)

    def forward(self, ids):
        _, h = self.gru(self.token(ids))
        return self.proj(h[-1])


class CLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.visual, self.text = ImageEncoder(), TextEncoder()
        self.logit_scale = nn.Parameter(torch.ones([]) * np.log(1 / 0.07))

    def forward(self, image, ids):
        image_features = F.normalize(self.visual(image), dim=-1)
        text_features = F.normalize(self.text(ids), dim=-1)
        logits_per_image = self.logit_scale.exp() * image_features @ text_features.t()
        return logits_per_image, logits_per_image.t()


clip = CLIP()
optim = torch.optim.AdamW(clip.parameters(), lr=5e-4, weight_decay=0.2)
for it in range(3):
    images, texts = torch.rand(5, 3, 16, 16), torch.randint(0, 60, (5, 7))
    li, lt = clip(images, texts)
    ground_truth = torch.arange(5)
    total_loss = (F.cross_entropy(li, ground_truth) + F.cross_entropy(lt, ground_truth)) / 2
    optim.zero_grad()
    total_loss.backward()
    optim.step()
    with torch.no_grad():
        clip.logit_scale.clamp_(0, np.log(100))
    print(it, total_loss.item())
