import torch
import torch.nn as nn
import torch.nn.functional as F


def make_teacher():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 36, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class Student(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.regressor = nn.Sequential(nn.Conv2d(4, 16, 1))
        self.classifier = nn.Linear(4 * 36, 10)

    def forward(self, x):
        f = self.features(x)
        return self.classifier(f.flatten(1)), self.regressor(f)


def kd_loss(student_logits, teacher_logits, T):
    soft_targets = F.softmax(teacher_logits / T, dim=-1)
    soft_prob = F.log_softmax(student_logits / T, dim=-1)
    return torch.sum(soft_targets * (soft_targets.log() - soft_prob)) / soft_prob.size()[0] * (T**2)


def train_knowledge_distillation(teacher, student, epochs=1, T=2, soft_w=0.25, ce_w=0.75):
    ce = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(student.parameters(), lr=0.001)
    teacher.eval()  # Teacher set to evaluation mode
    student.train()
    hidden = {}
    handle = teacher[4].register_forward_hook(lambda m, i, o: hidden.update(f=o))
    for epoch in range(epochs):
        for inputs, labels in [(torch.rand(6, 1, 12, 12), torch.randint(0, 10, (6,))) for _ in range(3)]:
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits, regressed = student(inputs)
            loss = (
                soft_w * kd_loss(student_logits, teacher_logits, T)
                + ce_w * ce(student_logits, labels)
                + 0.1 * F.mse_loss(regressed, hidden["f"])
            )
            loss.backward()
            optimizer.step()
            print("loss", loss.item())
    handle.remove()


torch.manual_seed(42)
train_knowledge_distillation(make_teacher(), Student())
