import torch
import torch.nn as nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))
opt = torch.optim.SGD(model.parameters(), lr=0.05)
X = torch.randn(960, 30)
Y = X[:, :5].argmax(1)
model.train()
for step in range(60):
    idx = torch.randint(0, 960, (32,))
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(X[idx]), Y[idx])
    loss.backward()
    opt.step()
model.eval()
y_pred = torch.empty(0, 5)
for i in range(0, 960, 16):
    with torch.no_grad():
        out = model(X[i : i + 16])
    y_pred = torch.cat((y_pred, out.cpu()))
print("accuracy", (y_pred.argmax(1) == Y).float().mean().item())
