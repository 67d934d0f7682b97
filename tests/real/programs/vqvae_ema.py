"""VQ-VAE with straight-through estimator (codebook learned by the loss, not EMA despite the file name)."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class VectorQuantizer(nn.Module):
    def __init__(self, num_embeddings, embedding_dim, commitment_cost):
        super().__init__()
        self._embedding_dim, self._num_embeddings = embedding_dim, num_embeddings
        self._embedding = nn.Embedding(num_embeddings, embedding_dim)
        self._embedding.weight.data.uniform_(-1 / num_embeddings, 1 / num_embeddings)
        self._commitment_cost = commitment_cost

    def forward(self, inputs):
        inputs = inputs.permute(0, 2, 3, 1).contiguous()  # BCHW -> BHWC
        input_shape = inputs.shape
        flat_input = inputs.view(-1, self._embedding_dim)
        distances = (
            torch.sum(flat_input**2, dim=1, keepdim=True)
            + torch.sum(self._embedding.weight**2, dim=1)
            - 2 * torch.matmul(flat_input, self._embedding.weight.t())
        )
        encoding_indices = torch.argmin(distances, dim=1).unsqueeze(1)
        encodings = torch.zeros(encoding_indices.shape[0], self._num_embeddings)
        encodings.scatter_(1, encoding_indices, 1)
        quantized = torch.matmul(encodings, self._embedding.weight).view(input_shape)
        e_latent_loss = F.mse_loss(quantized.detach(), inputs)
        q_latent_loss = F.mse_loss(quantized, inputs.detach())
        loss = q_latent_loss + self._commitment_cost * e_latent_loss
        quantized = inputs + (quantized - inputs).detach()
        avg_probs = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(avg_probs * torch.log(avg_probs + 1e-10)))
        return loss, quantized.permute(0, 3, 1, 2).contiguous(), perplexity


class Residual(nn.Module):
    def __init__(self, c, hidden):
        super().__init__()
        self._block = nn.Sequential(
            nn.ReLU(True), nn.Conv2d(c, hidden, 3, 1, 1, bias=False), nn.ReLU(True), nn.Conv2d(hidden, c, 1, bias=False)
        )

    def forward(self, x):
        return x + self._block(x)


class Model(nn.Module):
    def __init__(self, h=16, d=8, n=32):
        super().__init__()
        self._encoder = nn.Sequential(
            nn.Conv2d(3, h, 4, 2, 1), nn.ReLU(), nn.Conv2d(h, h, 3, 1, 1), Residual(h, 8), Residual(h, 8)
        )
        self._pre_vq_conv = nn.Conv2d(h, d, 1)
        self._vq_vae = VectorQuantizer(n, d, 0.25)
        self._decoder = nn.Sequential(
            nn.Conv2d(d, h, 3, 1, 1), Residual(h, 8), nn.ReLU(), nn.ConvTranspose2d(h, 3, 4, 2, 1)
        )

    def forward(self, x):
        z = self._pre_vq_conv(self._encoder(x))
        loss, quantized, perplexity = self._vq_vae(z)
        return loss, self._decoder(quantized), perplexity


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, amsgrad=False)
model.train()
train_res_recon_error, train_res_perplexity = [], []
for i in range(4):
    data = torch.rand(4, 3, 16, 16) - 0.5
    optimizer.zero_grad()
    vq_loss, data_recon, perplexity = model(data)
    recon_error = F.mse_loss(data_recon, data) / 0.06
    loss = recon_error + vq_loss
    loss.backward()
    optimizer.step()
    train_res_recon_error.append(recon_error.item())
    train_res_perplexity.append(perplexity.item())
print("recon_error: %.3f perplexity: %.3f" % (train_res_recon_error[-1], train_res_perplexity[-1]))
