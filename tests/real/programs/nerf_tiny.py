"""Tiny NeRF: positional encoding, an MLP with a skip, volume rendering of rays."""

import torch
import torch.nn.functional as F


def positional_encoding(tensor, num_encoding_functions=4, include_input=True):
    encoding = [tensor] if include_input else []
    frequency_bands = 2.0 ** torch.linspace(0.0, num_encoding_functions - 1, num_encoding_functions)
    for freq in frequency_bands:
        for func in [torch.sin, torch.cos]:
            encoding.append(func(tensor * freq))
    return torch.cat(encoding, dim=-1)


def cumprod_exclusive(tensor):
    cumprod = torch.cumprod(tensor, -1)
    cumprod = torch.roll(cumprod, 1, -1)
    cumprod[..., 0] = 1.0
    return cumprod


def compute_query_points_from_rays(ray_origins, ray_directions, near, far, num_samples):
    depth_values = torch.linspace(near, far, num_samples)
    noise_shape = list(ray_origins.shape[:-1]) + [num_samples]
    depth_values = depth_values + torch.rand(noise_shape) * (far - near) / num_samples
    query_points = ray_origins[..., None, :] + ray_directions[..., None, :] * depth_values[..., :, None]
    return query_points, depth_values


def render_volume_density(radiance_field, ray_origins, depth_values):
    sigma_a = F.relu(radiance_field[..., 3])
    rgb = torch.sigmoid(radiance_field[..., :3])
    one_e_10 = torch.tensor([1e10])
    dists = torch.cat(
        (depth_values[..., 1:] - depth_values[..., :-1], one_e_10.expand(depth_values[..., :1].shape)), dim=-1
    )
    alpha = 1.0 - torch.exp(-sigma_a * dists)
    weights = alpha * cumprod_exclusive(1.0 - alpha + 1e-10)
    rgb_map = (weights[..., None] * rgb).sum(dim=-2)
    depth_map = (weights * depth_values).sum(dim=-1)
    return rgb_map, depth_map, weights.sum(-1)


class VeryTinyNerfModel(torch.nn.Module):
    def __init__(self, filter_size=32, num_encoding_functions=4):
        super(VeryTinyNerfModel, self).__init__()
        d = 3 + 3 * 2 * num_encoding_functions
        self.layer1 = torch.nn.Linear(d, filter_size)
        self.layer2 = torch.nn.Linear(filter_size, filter_size)
        self.layer3 = torch.nn.Linear(filter_size + d, filter_size)
        self.out = torch.nn.Linear(filter_size, 4)
        self.relu = torch.nn.functional.relu

    def forward(self, x):
        h = self.relu(self.layer1(x))
        h = self.relu(self.layer2(h))
        h = self.relu(self.layer3(torch.cat([h, x], -1)))
        return self.out(h)


def get_minibatches(inputs, chunksize=48):
    return [inputs[i : i + chunksize] for i in range(0, inputs.shape[0], chunksize)]


def run_one_iter_of_tinynerf(rays_o, rays_d, model):
    query_points, depth_values = compute_query_points_from_rays(rays_o, rays_d, 2.0, 6.0, 8)
    flattened = positional_encoding(query_points.reshape((-1, 3)))
    predictions = []
    for batch in get_minibatches(flattened):
        predictions.append(model(batch))
    radiance_field = torch.cat(predictions, dim=0).reshape(list(query_points.shape[:-1]) + [4])
    rgb_predicted, _, _ = render_volume_density(radiance_field, rays_o, depth_values)
    return rgb_predicted


torch.manual_seed(0)
model = VeryTinyNerfModel()
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
psnrs, iternums = [], []
for i in range(3):
    rays_o, rays_d = torch.zeros(24, 3), F.normalize(torch.randn(24, 3), dim=-1)
    target_img = torch.rand(24, 3)
    rgb_predicted = run_one_iter_of_tinynerf(rays_o, rays_d, model)
    loss = F.mse_loss(rgb_predicted, target_img)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    psnrs.append(-10.0 * torch.log10(loss.detach()).item())
    iternums.append(i)
print("psnr", psnrs)
