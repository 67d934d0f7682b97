import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.GELU(),
    nn.Conv2d(16, 16, 3, padding=1, groups=4),
    nn.GroupNorm(4, 16),
    nn.SiLU(),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(64, 10),
)
opt = torch.optim.SGD(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu", enabled=False)  # kept from the fp16 version

for i in range(3):
    images, target = torch.rand(4, 3, 16, 16), torch.randint(0, 10, (4,))
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        output = model(images)
        loss = nn.functional.cross_entropy(output, target)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(opt)
    scaler.update()
    print(i, output.dtype, loss.item())
