"""Networks that answer with images, for images of any height and width."""

import torch
from torch import nn


def twice(inward, outward):
    return nn.Sequential(
        nn.Conv2d(inward, outward, 3, padding=1),
        nn.BatchNorm2d(outward),
        nn.ReLU(),
        nn.Conv2d(outward, outward, 3, padding=1),
        nn.BatchNorm2d(outward),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Goes down by two and up again; odd sizes are met by padding to the skip's size."""

    def __init__(self, width=6, classes=3):
        super().__init__()
        self.first, self.second, self.third = (
            twice(1, width),
            twice(width, 2 * width),
            twice(2 * width, 4 * width),
        )
        self.up_second = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.up_first = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.back_second, self.back_first = twice(4 * width, 2 * width), twice(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def join(self, low, skip):
        high, wide = skip.shape[-2] - low.shape[-2], skip.shape[-1] - low.shape[-1]
        return torch.cat([skip, nn.functional.pad(low, (0, wide, 0, high))], dim=1)

    def forward(self, image):
        first = self.first(image)
        second = self.second(nn.functional.max_pool2d(first, 2))
        third = self.third(nn.functional.max_pool2d(second, 2))
        second = self.back_second(self.join(self.up_second(third), second))
        first = self.back_first(self.join(self.up_first(second), first))
        return self.head(first)


class SuperResolution(nn.Module):
    def __init__(self, factor=3, width=12):
        super().__init__()
        self.factor = factor
        self.body = nn.Sequential(
            nn.Conv2d(3, width, 5, padding=2),
            nn.PReLU(width),
            nn.Conv2d(width, width, 3, padding=1, padding_mode="reflect"),
            nn.PReLU(width),
            nn.Conv2d(width, 3 * factor**2, 3, padding=1),
            nn.PixelShuffle(factor),
        )

    def forward(self, image):
        smooth = nn.functional.interpolate(
            image, scale_factor=self.factor, mode="bilinear", align_corners=False
        )
        return (smooth + self.body(image)).clamp(0, 1)


class StyleNet(nn.Module):
    """Group norm and instance norm, whose statistics are those of each image alone."""

    def __init__(self, width=8):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(2),
            nn.Conv2d(3, width, 5),
            nn.InstanceNorm2d(width, affine=True),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, 2, 1),
            nn.GroupNorm(4, 2 * width),
            nn.SiLU(),
            nn.Upsample(scale_factor=2, mode="nearest"),
            nn.Conv2d(2 * width, 3, 3, padding=1),
        )

    def forward(self, image):
        return torch.tanh(self.body(image))


class Segmenter(nn.Module):
    """Takes bytes as cameras give them (height, width, colour) and answers with a class for each pixel."""

    def __init__(self, classes=4):
        super().__init__()
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406]))
        self.register_buffer("deviation", torch.tensor([0.229, 0.224, 0.225]))
        self.down = nn.Conv2d(3, 12, 3, 2, 1)
        self.wide = nn.Conv2d(12, 12, 3, padding=2, dilation=2)
        self.head = nn.Conv2d(12, classes, 1)

    def forward(self, image):
        x = ((image.to(torch.float32) / 255 - self.mean) / self.deviation).permute(0, 3, 1, 2)
        x = torch.relu(self.wide(torch.relu(self.down(x))))
        logits = nn.functional.interpolate(
            self.head(x), size=image.shape[1:3], mode="bilinear", align_corners=True
        )
        return {"classes": logits.argmax(1), "confidence": torch.softmax(logits, 1).amax(1)}
