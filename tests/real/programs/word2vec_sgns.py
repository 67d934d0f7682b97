# -*- coding: utf-8 -*-
"""Skip-gram with negative sampling."""

import random
from collections import Counter

import torch
import torch.nn as nn
import torch.nn.functional as F

text = "we are about to study the idea of a computational process computational processes are abstract beings that inhabit computers as they evolve processes manipulate other abstract things called data".split()
vocab = {w: i for i, (w, _) in enumerate(Counter(text).most_common())}
ids = [vocab[w] for w in text]


class SkipGramModel(nn.Module):
    def __init__(self, emb_size, emb_dimension):
        super(SkipGramModel, self).__init__()
        self.u_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        self.v_embeddings = nn.Embedding(emb_size, emb_dimension, sparse=True)
        initrange = 1.0 / emb_dimension
        nn.init.uniform_(self.u_embeddings.weight.data, -initrange, initrange)
        nn.init.constant_(self.v_embeddings.weight.data, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u = self.u_embeddings(pos_u)
        emb_v = self.v_embeddings(pos_v)
        emb_neg_v = self.v_embeddings(neg_v)
        score = torch.sum(torch.mul(emb_u, emb_v), dim=1)
        score = torch.clamp(score, max=10, min=-10)
        score = -F.logsigmoid(score)
        neg_score = torch.bmm(emb_neg_v, emb_u.unsqueeze(2)).squeeze()
        neg_score = torch.clamp(neg_score, max=10, min=-10)
        neg_score = -torch.sum(F.logsigmoid(-neg_score), dim=1)
        return torch.mean(score + neg_score)


class Word2VecTrainer:
    def __init__(self, window=2, dim=10):
        self.emb_size = len(vocab)
        self.pairs = [
            (ids[i], ids[j])
            for i in range(len(ids))
            for j in range(max(0, i - window), min(len(ids), i + window + 1))
            if i != j
        ]
        self.skip_gram_model = SkipGramModel(self.emb_size, dim)

    def train(self, iterations=1):
        for iteration in range(iterations):
            optimizer = torch.optim.SparseAdam(list(self.skip_gram_model.parameters()), lr=0.01)
            running_loss = 0.0
            random.shuffle(self.pairs)
            for i in range(0, 64, 16):
                batch = self.pairs[i : i + 16]
                pos_u = torch.tensor([u for u, _ in batch])
                pos_v = torch.tensor([v for _, v in batch])
                neg_v = torch.randint(0, self.emb_size, (16, 5))
                optimizer.zero_grad()
                loss = self.skip_gram_model.forward(pos_u, pos_v, neg_v)
                loss.backward()
                optimizer.step()
                running_loss = running_loss * 0.9 + loss.item() * 0.1
            print("iteration", iteration, "Loss:", running_loss)


if __name__ == "__main__":
    w2v = Word2VecTrainer()
    w2v.train()
