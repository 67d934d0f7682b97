"""DeepSpeech-like acoustic model with CTC."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim


class CNNLayerNorm(nn.Module):
    """Layer normalization built for cnns input"""

    def __init__(self, n_feats):
        super(CNNLayerNorm, self).__init__()
        self.layer_norm = nn.LayerNorm(n_feats)

    def forward(self, x):
        # x (batch, channel, feature, time)
        x = x.transpose(2, 3).contiguous()
        x = self.layer_norm(x)
        return x.transpose(2, 3).contiguous()


class ResidualCNN(nn.Module):
    def __init__(self, channels, n_feats, dropout):
        super(ResidualCNN, self).__init__()
        self.cnn1 = nn.Conv2d(channels, channels, 3, 1, padding=1)
        self.cnn2 = nn.Conv2d(channels, channels, 3, 1, padding=1)
        self.dropout1, self.dropout2 = nn.Dropout(dropout), nn.Dropout(dropout)
        self.layer_norm1, self.layer_norm2 = CNNLayerNorm(n_feats), CNNLayerNorm(n_feats)

    def forward(self, x):
        residual = x
        x = self.dropout1(F.gelu(self.layer_norm1(x)))
        x = self.cnn1(x)
        x = self.dropout2(F.gelu(self.layer_norm2(x)))
        x = self.cnn2(x)
        x += residual
        return x


class BidirectionalGRU(nn.Module):
    def __init__(self, rnn_dim, hidden_size, dropout, batch_first):
        super(BidirectionalGRU, self).__init__()
        self.BiGRU = nn.GRU(rnn_dim, hidden_size, num_layers=1, batch_first=batch_first, bidirectional=True)
        self.layer_norm = nn.LayerNorm(rnn_dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        x = F.gelu(self.layer_norm(x))
        x, _ = self.BiGRU(x)
        return self.dropout(x)


class SpeechRecognitionModel(nn.Module):
    def __init__(self, n_cnn_layers, n_rnn_layers, rnn_dim, n_class, n_feats, dropout=0.1):
        super(SpeechRecognitionModel, self).__init__()
        n_feats = n_feats // 2
        self.cnn = nn.Conv2d(1, 4, 3, stride=2, padding=3 // 2)
        self.rescnn_layers = nn.Sequential(*[ResidualCNN(4, n_feats, dropout) for _ in range(n_cnn_layers)])
        self.fully_connected = nn.Linear(n_feats * 4, rnn_dim)
        self.birnn_layers = nn.Sequential(
            *[
                BidirectionalGRU(rnn_dim if i == 0 else rnn_dim * 2, rnn_dim, dropout, i == 0)
                for i in range(n_rnn_layers)
            ]
        )
        self.classifier = nn.Sequential(
            nn.Linear(rnn_dim * 2, rnn_dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(rnn_dim, n_class)
        )

    def forward(self, x):
        x = self.cnn(x)
        x = self.rescnn_layers(x)
        sizes = x.size()
        x = x.view(sizes[0], sizes[1] * sizes[2], sizes[3])  # (batch, feature, time)
        x = x.transpose(1, 2)  # (batch, time, feature)
        x = self.fully_connected(x)
        x = self.birnn_layers(x)
        return self.classifier(x)


def main(learning_rate=5e-4, batch_size=2, epochs=1):
    torch.manual_seed(7)
    hparams = {"n_cnn_layers": 2, "n_rnn_layers": 2, "rnn_dim": 16, "n_class": 29, "n_feats": 16}
    model = SpeechRecognitionModel(**hparams)
    optimizer = optim.AdamW(model.parameters(), learning_rate)
    criterion = nn.CTCLoss(blank=28)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=learning_rate, steps_per_epoch=3, epochs=epochs)
    for epoch in range(1, epochs + 1):
        model.train()
        for batch_idx in range(3):
            spectrograms = torch.randn(batch_size, 1, 16, 40)
            labels = torch.randint(0, 28, (batch_size, 6))
            optimizer.zero_grad()
            output = model(spectrograms)  # (batch, time, n_class)
            output = F.log_softmax(output, dim=2)
            output = output.transpose(0, 1)  # (time, batch, n_class)
            loss = criterion(output, labels, [output.shape[0]] * batch_size, [6] * batch_size)
            loss.backward()
            optimizer.step()
            scheduler.step()
            print("Train Epoch: {} [{}/{}]\tLoss: {:.6f}".format(epoch, batch_idx, 3, loss.item()))


if __name__ == "__main__":
    main()
