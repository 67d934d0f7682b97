import torch
from transformers import ResNetConfig, ResNetForImageClassification

model = ResNetForImageClassification(
    ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 24], depths=[2, 2, 2], layer_type="basic", num_labels=4)
)
opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    loss = model(torch.rand(2, 3, 32, 32), labels=torch.randint(0, 4, (2,))).loss
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(step, loss.item())
