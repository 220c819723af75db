"""Image classifiers."""

import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self, inward, outward, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inward, outward, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outward),
            nn.ReLU(inplace=True),
            nn.Conv2d(outward, outward, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outward),
        )
        self.short = nn.Identity()
        if stride != 1 or inward != outward:
            self.short = nn.Sequential(
                nn.Conv2d(inward, outward, 1, stride, bias=False), nn.BatchNorm2d(outward)
            )

    def forward(self, x):
        return torch.relu(self.body(x) + self.short(x))


class ResNet(nn.Module):
    def __init__(self, width=8, classes=10):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.stages = nn.Sequential(
            Residual(width, width, 1), Residual(width, 2 * width, 2), Residual(2 * width, 4 * width, 2)
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(4 * width, classes)

    def forward(self, image):
        return self.head(self.pool(self.stages(self.stem(image))).flatten(1))


class SqueezeExcite(nn.Module):
    def __init__(self, width, inner, inside, gate):
        super().__init__()
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, inner, 1), inside, nn.Conv2d(inner, width, 1), gate
        )

    def forward(self, x):
        return x * self.gate(x)


class Inverted(nn.Module):
    """Expand, filter each channel alone, weigh the channels, project."""

    def __init__(self, inward, outward, kernel, stride, expand, activation, gate):
        super().__init__()
        inner = inward * expand
        self.skip = stride == 1 and inward == outward
        self.body = nn.Sequential(
            nn.Conv2d(inward, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            activation(),
            nn.Conv2d(inner, inner, kernel, stride, kernel // 2, groups=inner, bias=False),
            nn.BatchNorm2d(inner),
            activation(),
            SqueezeExcite(inner, max(inner // 4, 2), nn.ReLU(), gate()),
            nn.Conv2d(inner, outward, 1, bias=False),
            nn.BatchNorm2d(outward),
        )

    def forward(self, x):
        y = self.body(x)
        return x + y if self.skip else y


class MobileNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.Hardswish(),
            Inverted(8, 8, 3, 1, 2, nn.Hardswish, nn.Hardsigmoid),
            Inverted(8, 12, 5, 2, 3, nn.Hardswish, nn.Hardsigmoid),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(12, 24),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(24, classes),
        )

    def forward(self, image):
        return self.body(image)


class EfficientNet(nn.Module):
    def __init__(self, classes=6):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU())
        self.blocks = nn.Sequential(
            Inverted(8, 8, 3, 1, 1, nn.SiLU, nn.Sigmoid),
            Inverted(8, 12, 3, 2, 4, nn.SiLU, nn.Sigmoid),
            Inverted(12, 12, 5, 1, 4, nn.SiLU, nn.Sigmoid),
        )
        self.head = nn.Linear(12, classes)

    def forward(self, image):
        return torch.log_softmax(self.head(self.blocks(self.stem(image)).mean((2, 3))), dim=1)


class ConvNextBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.filter = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        y = self.norm(self.filter(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(nn.functional.gelu(self.up(y), approximate="tanh"))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    def __init__(self, width=12, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(ConvNextBlock(width), ConvNextBlock(width))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        return self.head(self.norm(self.blocks(self.stem(image)).mean([-2, -1])))


class MixerBlock(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.along = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        x = x + self.across(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.along(self.second(x))


class MlpMixer(nn.Module):
    def __init__(self, width=16, classes=5):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(MixerBlock(16, width), MixerBlock(16, width))
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        tokens = self.patch(image).flatten(2).transpose(1, 2)
        return self.head(self.blocks(tokens).mean(1))


class VisionTransformer(nn.Module):
    def __init__(self, width=16, depth=2, classes=7):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.zeros(1, 17, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        tokens = self.patch(image).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(tokens.shape[0], -1, -1), tokens], dim=1)
        return self.head(self.norm(self.encoder(tokens + self.position))[:, 0])
