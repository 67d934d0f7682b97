import numpy as np
import torch
from torch.autograd import Variable  # old code, still works

rng = np.random.RandomState(0)
ratings = rng.randint(0, 6, size=(12, 15)) * (rng.rand(12, 15) > 0.6)


class BiasedMatrixFactorization(torch.nn.Module):
    def __init__(self, n_users, n_items, n_factors=5):
        super().__init__()
        self.user_factors = torch.nn.Embedding(n_users, n_factors, sparse=True)
        self.item_factors = torch.nn.Embedding(n_items, n_factors, sparse=True)
        self.user_biases = torch.nn.Embedding(n_users, 1, sparse=True)
        self.item_biases = torch.nn.Embedding(n_items, 1, sparse=True)

    def forward(self, user, item):
        pred = self.user_biases(user) + self.item_biases(item)
        pred += (self.user_factors(user) * self.item_factors(item)).sum(1, keepdim=True)
        return pred.squeeze()


model = BiasedMatrixFactorization(*ratings.shape)
loss_func = torch.nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
rows, cols = ratings.nonzero()
p = rng.permutation(len(rows))
rows, cols = rows[p], cols[p]
for row, col in list(zip(rows, cols))[:25]:
    # Turn data into variables
    rating = Variable(torch.FloatTensor([float(ratings[row, col])]))
    row = Variable(torch.LongTensor([int(row)]))
    col = Variable(torch.LongTensor([int(col)]))
    optimizer.zero_grad()
    prediction = model(row, col)
    loss = loss_func(prediction.view(1), rating)
    loss.backward()
    optimizer.step()
print("last squared error", loss.item())
