"""Recurrent networks over words, characters and steps."""

import torch
from torch import nn


class LstmTagger(nn.Module):
    def __init__(self, words=60, width=12, tags=5):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, 16, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(16, tags)

    def forward(self, ids):
        hidden, _ = self.rnn(self.word(ids))
        return self.head(hidden)


class GruTagger(nn.Module):
    """Reads the characters of each word, then the words: two free lengths."""

    def __init__(self, letters=30, width=8, tags=4):
        super().__init__()
        self.letter = nn.Embedding(letters, width)
        self.inner = nn.GRU(width, 10, batch_first=True)
        self.outer = nn.GRU(10, 12, batch_first=True, bidirectional=True)
        self.head = nn.Linear(24, tags)

    def forward(self, letters):
        batch, words, length = letters.shape
        _, last = self.inner(self.letter(letters.reshape(batch * words, length)))
        hidden, _ = self.outer(last[0].reshape(batch, words, -1))
        return {"scores": self.head(hidden), "tags": self.head(hidden).argmax(-1)}


class BiLstmMasked(nn.Module):
    """Both directions stop at the end of each text, as packed sequences do."""

    def __init__(self, words=60, width=10, classes=3):
        super().__init__()
        self.word = nn.Embedding(words, width)
        self.ahead = nn.LSTM(width, 12, batch_first=True)
        self.back = nn.LSTM(width, 12, batch_first=True)
        self.head = nn.Linear(24, classes)

    def forward(self, ids, lengths):
        position = torch.arange(ids.shape[1]).unsqueeze(0)
        inside = position < lengths.unsqueeze(1)
        mirror = torch.where(inside, lengths.unsqueeze(1) - 1 - position, position)
        x = self.word(ids)
        ahead, _ = self.ahead(x)
        back, _ = self.back(x.gather(1, mirror.unsqueeze(-1).expand(-1, -1, x.shape[-1])))
        back = back.gather(1, mirror.unsqueeze(-1).expand(-1, -1, back.shape[-1]))
        both = torch.cat([ahead, back], dim=-1) * inside.unsqueeze(-1)
        return self.head(both.sum(1) / lengths.unsqueeze(1))


class LstmState(nn.Module):
    """State in and out, with the batch first."""

    def __init__(self, features=4, width=6, layers=2):
        super().__init__()
        self.rnn = nn.LSTM(features, width, layers, batch_first=True)
        self.head = nn.Linear(width, 2)

    def forward(self, x, hidden, cell):
        y, (hidden, cell) = self.rnn(
            x, (hidden.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous())
        )
        return {"y": self.head(y), "hidden_out": hidden.transpose(0, 1), "cell_out": cell.transpose(0, 1)}


class LstmStateLayersFirst(nn.Module):
    """State in and out as the layer itself takes it: layers first, then the batch."""

    def __init__(self, features=4, width=6, layers=2):
        super().__init__()
        self.rnn = nn.LSTM(features, width, layers, batch_first=True)

    def forward(self, x, hidden, cell):
        y, (hidden, cell) = self.rnn(x, (hidden, cell))
        return y, hidden, cell


class Tcn(nn.Module):
    """Causal convolutions, each twice as far apart as those before."""

    def __init__(self, features=3, width=10, levels=3):
        super().__init__()
        self.levels = nn.ModuleList(
            nn.utils.parametrizations.weight_norm(
                nn.Conv1d(features if level == 0 else width, width, 3, dilation=2**level)
            )
            for level in range(levels)
        )
        self.head = nn.Conv1d(width, 2, 1)

    def forward(self, series):
        x = series.transpose(1, 2)
        for level, layer in enumerate(self.levels):
            y = torch.relu(layer(nn.functional.pad(x, (2 * 2**level, 0))))
            x = y if level == 0 else x + y
        return self.head(x).transpose(1, 2)
