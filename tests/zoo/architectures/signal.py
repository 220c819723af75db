"""Networks over waves: spectra inside the model."""

import torch
from torch import nn


class Spectrogram(nn.Module):
    """A log spectrogram by the short-time Fourier transform, and a convolution over it."""

    def __init__(self, size=32, hop=16, classes=4):
        super().__init__()
        self.size, self.hop = size, hop
        self.register_buffer("window", torch.hann_window(size))
        self.body = nn.Sequential(nn.Conv1d(size // 2 + 1, 12, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(12, classes)

    def forward(self, wave):
        spectrum = torch.stft(
            wave,
            self.size,
            self.hop,
            window=self.window,
            center=True,
            pad_mode="reflect",
            return_complex=True,
        )
        power = torch.log1p(spectrum.real.square() + spectrum.imag.square())
        return self.head(self.body(power).mean(-1))


class Fourier(nn.Module):
    """The spectrum of a whole window."""

    def __init__(self, samples=64, classes=3):
        super().__init__()
        self.head = nn.Sequential(nn.Linear(samples // 2 + 1, 16), nn.ReLU(), nn.Linear(16, classes))

    def forward(self, wave):
        return self.head(torch.fft.rfft(wave, dim=-1).abs())


class WaveNet(nn.Module):
    """Frames by unfold, mel bands by a product."""

    def __init__(self, frame=20, hop=10, bands=8):
        super().__init__()
        self.frame, self.hop = frame, hop
        self.basis = nn.Parameter(torch.randn(frame, bands))
        self.rnn = nn.GRU(bands, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, wave):
        frames = wave.unfold(-1, self.frame, self.hop)
        hidden, _ = self.rnn(torch.log1p((frames @ self.basis).square()))
        return self.head(hidden)
