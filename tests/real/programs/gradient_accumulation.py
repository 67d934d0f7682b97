import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accumulation_steps = 4
dataset = TensorDataset(torch.randn(64, 10), torch.randint(0, 3, (64,)))
loader = DataLoader(dataset, batch_size=4, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.input = nn.Linear(10, 32)
        self.hidden = nn.ModuleList([nn.Linear(32, 32) for _ in range(3)])
        self.drop = nn.Dropout(0.1)
        self.output = nn.Linear(32, 3)

    def forward(self, x):
        x = torch.relu(self.input(x))
        for layer in self.hidden:
            x = x + self.drop(torch.relu(layer(x)))
        return self.output(x)


model, criterion = Net(), nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
running = 0.0
for step, (inputs, labels) in enumerate(loader):
    loss = criterion(model(inputs), labels)
    loss = loss / accumulation_steps  # normalise, because gradients add up
    loss.backward()
    running += loss.item()
    if (step + 1) % accumulation_steps == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"update {(step + 1) // accumulation_steps}: loss {running:.4f}")
        running = 0.0
