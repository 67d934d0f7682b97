import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(28, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
X, Y = torch.randn(640, 28), torch.randint(0, 10, (640,))
for epoch in range(5):
    model.train()
    for i in range(0, 512, 32):
        optimizer.zero_grad()
        output = model(X[i : i + 32])
        loss = nn.functional.nll_loss(nn.functional.log_softmax(output, dim=1), Y[i : i + 32])
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for i in range(512, 640, 32):
            correct += (model(X[i : i + 32]).argmax(1) == Y[i : i + 32]).sum().item()
    print("epoch", epoch, "acc", correct / 128)
